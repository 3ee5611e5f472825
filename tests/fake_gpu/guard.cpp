// Makes a CPU build of PyTorch accept tensors on device "cuda": a device guard and hooks that do nothing.
//
// With it FakeTensorMode carries the device through views and in-place operations, which would otherwise end with "not
// linked with support for cuda devices". Nothing is ever computed. PyTorch looks for its hooks once, when it is imported,
// so this library must be loaded before.

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;

struct Guard final : c10::impl::NoOpDeviceGuardImpl<DeviceType::CUDA> {
  Device getDevice() const override { return Device(DeviceType::CUDA, 0); }
  Device exchangeDevice(Device) const override { return getDevice(); }
  Stream getStream(Device) const noexcept override { return Stream(Stream::DEFAULT, getDevice()); }
  Stream getDefaultStream(Device) const override { return Stream(Stream::DEFAULT, getDevice()); }
  Stream exchangeStream(Stream) const noexcept override { return Stream(Stream::DEFAULT, getDevice()); }
  DeviceIndex deviceCount() const noexcept override { return 1; }
};

// The name of the class is the key under which PyTorch looks for it.
struct CUDAHooks final : at::CUDAHooksInterface {
  CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex current_device() const override { return 0; }
  DeviceIndex deviceCount() const override { return 1; }
  int getNumGPUs() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
};

using namespace at;
REGISTER_CUDA_HOOKS(CUDAHooks);
static const c10::impl::DeviceGuardImplRegistrar registered(DeviceType::CUDA, new Guard);
