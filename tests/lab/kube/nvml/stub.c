// Copyright (c) 2026, muster.training contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
// a stand-in for libnvidia-ml.so.1: N GPUs that do not exist, for tests of programs that speak NVML
#ifndef DRIVER
#define DRIVER "595.91.07"
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef int R; typedef void* D;
typedef struct { char busIdLegacy[16]; unsigned domain, bus, device, pciDeviceId, pciSubSystemId; char busId[32]; } Pci;
static int n(void){ char*e=getenv("FAKE_GPUS"); return e?atoi(e):2; }
#define S(x,len,...) do{ snprintf(x,len,__VA_ARGS__); return 0; }while(0)
R nvmlInit_v2(void){return 0;} R nvmlInitWithFlags(unsigned f){return 0;} R nvmlShutdown(void){return 0;}
const char* nvmlErrorString(R r){ return r==3?"Not Supported":r?"Error":"Success"; }
R nvmlSystemGetDriverVersion(char*v,unsigned l){ S(v,l,"%s",DRIVER); }
R nvmlSystemGetNVMLVersion(char*v,unsigned l){ S(v,l,"13.%s",DRIVER); }
R nvmlSystemGetCudaDriverVersion_v2(int*v){*v=13010;return 0;} R nvmlSystemGetCudaDriverVersion(int*v){*v=13010;return 0;}
R nvmlDeviceGetCount_v2(unsigned*c){*c=n();return 0;}
R nvmlDeviceGetHandleByIndex_v2(unsigned i,D*d){ if(i>=(unsigned)n())return 2; *d=(D)(long)(i+1); return 0;}
static unsigned ix(D d){return (unsigned)((long)d-1);}
R nvmlDeviceGetHandleByUUID(const char*u,D*d){ for(int i=0;i<n();i++){char b[64];snprintf(b,64,"GPU-00000000-0000-4000-8000-%012d",i);if(!strcmp(b,u)){*d=(D)(long)(i+1);return 0;}} return 6;}
R nvmlDeviceGetIndex(D d,unsigned*i){*i=ix(d);return 0;}
R nvmlDeviceGetMinorNumber(D d,unsigned*i){*i=ix(d);return 0;}
R nvmlDeviceGetUUID(D d,char*u,unsigned l){ S(u,l,"GPU-00000000-0000-4000-8000-%012u",ix(d)); }
R nvmlDeviceGetName(D d,char*u,unsigned l){ S(u,l,"%s",getenv("FAKE_GPU_NAME")?getenv("FAKE_GPU_NAME"):"NVIDIA H100 80GB HBM3"); }
R nvmlDeviceGetPciInfo_v3(D d,Pci*p){ memset(p,0,sizeof *p); p->bus=ix(d)+1; p->pciDeviceId=0x233010de; snprintf(p->busId,32,"00000000:%02X:00.0",p->bus); snprintf(p->busIdLegacy,16,"0000:%02X:00.0",p->bus); return 0;}
R nvmlDeviceGetMemoryInfo(D d,unsigned long long*m){ if(getenv("FAKE_NO_MEMORY"))return 3; m[0]=85899345920ULL;m[1]=85000000000ULL;m[2]=899345920ULL;return 0;}
R nvmlDeviceGetMigMode(D d,unsigned*c,unsigned*p){ return 3; }
R nvmlDeviceGetCudaComputeCapability(D d,int*a,int*b){*a=9;*b=0;return 0;}
R nvmlDeviceGetArchitecture(D d,unsigned*a){*a=9;return 0;}
R nvmlDeviceGetBrand(D d,unsigned*a){*a=14;return 0;}
R nvmlDeviceGetMaxMigDeviceCount(D d,unsigned*a){*a=0;return 0;}
R nvmlDeviceGetComputeMode(D d,unsigned*a){*a=0;return 0;}
R nvmlDeviceGetSupportedEventTypes(D d,unsigned long long*t){*t=8;return 0;}
R nvmlEventSetCreate(D*s){*s=(D)99;return 0;} R nvmlEventSetFree(D s){return 0;}
R nvmlDeviceRegisterEvents(D d,unsigned long long t,D s){return 0;}
#include <unistd.h>
// a file with the number of a GPU and of an Xid says that it has failed, once
typedef struct { D device; unsigned long long type, data; unsigned gpuInstance, computeInstance; } Event;
R nvmlEventSetWait_v2(D s,Event*e,unsigned ms){
  static int told; unsigned gpu,xid; FILE*f=told?0:fopen("/driver-root/xid","r");
  if(f&&fscanf(f,"%u %u",&gpu,&xid)==2){ fclose(f); told=1; memset(e,0,sizeof *e); e->device=(D)(long)(gpu+1); e->type=8; e->data=xid; e->gpuInstance=e->computeInstance=~0u; return 0; }
  if(f) fclose(f);
  usleep((ms<500?ms:500)*1000); return 10;
}
R nvmlDeviceGetAddressingMode(D d,void*m){return 3;}
R nvmlDeviceGetGpuFabricInfo(D d,void*m){return 3;} R nvmlDeviceGetGpuFabricInfoV(D d,void*m){return 3;}
R nvmlDeviceIsMigDeviceHandle(D d,unsigned*m){*m=0;return 0;}
R nvmlDeviceGetNvLinkState(D d,unsigned l,unsigned*a){return 3;}
R nvmlDeviceGetTopologyCommonAncestor(D a,D b,unsigned*p){*p=20;return 0;}
R nvmlDeviceGetP2PStatus(D a,D b,unsigned i,unsigned*s){*s=0;return 0;}
R nvmlDeviceGetVirtualizationMode(D d,unsigned*m){*m=0;return 0;}
R nvmlDeviceGetGpuInstanceProfileInfo(void){return 3;}
