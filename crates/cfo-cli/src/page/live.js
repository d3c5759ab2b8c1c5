// A page with a server behind it.

async function goLive() {}
