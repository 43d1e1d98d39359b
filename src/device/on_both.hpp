#pragma once
// What is compiled for the processor and for the GPU.
#ifdef __CUDACC__
#define EBB_ON_BOTH __host__ __device__ __forceinline__
#else
#define EBB_ON_BOTH inline
#endif
