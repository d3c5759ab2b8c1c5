//! Learn the continuous-time dynamics of PDEs and ODEs by flow matching on temporal splines.
