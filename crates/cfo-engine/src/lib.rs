//! A static graph of tensor operations, differentiated, planned and run on the CPU or on CUDA.
