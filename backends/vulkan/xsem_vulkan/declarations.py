"""The part of Vulkan's C interface that xsem calls, for cffi: names and layouts of the Vulkan specification."""

from __future__ import annotations

from typing import Final

__all__ = ["FUNCTIONS", "HANDLES", "STRUCTS"]

# A test compares sizes, offsets and numbers with the Vulkan headers. Non-dispatchable handles are uint64_t on every
# platform here, so Python sees them as ints. On 64-bit platforms the headers declare them as pointers of the same size.
# Enumerations and flags are int32_t and uint32_t, because a driver may return values newer than every header.
HANDLES: Final = """
typedef struct VkInstance_T *VkInstance;
typedef struct VkPhysicalDevice_T *VkPhysicalDevice;
typedef struct VkDevice_T *VkDevice;
typedef struct VkQueue_T *VkQueue;
typedef struct VkCommandBuffer_T *VkCommandBuffer;
typedef uint64_t VkSemaphore;
typedef uint64_t VkFence;
typedef uint64_t VkBuffer;
typedef uint64_t VkDeviceMemory;
typedef uint64_t VkCommandPool;
typedef uint64_t VkImage;
typedef uint64_t VkDeviceSize;
typedef uint32_t VkBool32;
typedef uint32_t VkFlags;
typedef int32_t VkResult;
typedef int32_t VkEnum;
"""

STRUCTS: Final = """
typedef struct { VkEnum sType; void *pNext; } VkBaseOutStructure;
typedef struct { uint32_t width, height, depth; } VkExtent3D;
typedef struct {
    VkEnum sType; const void *pNext; const char *pApplicationName; uint32_t applicationVersion;
    const char *pEngineName; uint32_t engineVersion; uint32_t apiVersion;
} VkApplicationInfo;
typedef struct {
    VkEnum sType; const void *pNext; VkFlags flags; const VkApplicationInfo *pApplicationInfo;
    uint32_t enabledLayerCount; const char *const *ppEnabledLayerNames;
    uint32_t enabledExtensionCount; const char *const *ppEnabledExtensionNames;
} VkInstanceCreateInfo;
typedef struct { char extensionName[256]; uint32_t specVersion; } VkExtensionProperties;

typedef struct {
    uint32_t apiVersion, driverVersion, vendorID, deviceID; VkEnum deviceType; char deviceName[256];
    uint8_t pipelineCacheUUID[16]; uint64_t limits[63]; VkBool32 sparseProperties[5];
} VkPhysicalDeviceProperties;
typedef struct { VkEnum sType; void *pNext; VkPhysicalDeviceProperties properties; } VkPhysicalDeviceProperties2;
typedef struct {
    VkEnum sType; void *pNext; uint8_t deviceUUID[16], driverUUID[16], deviceLUID[8]; uint32_t deviceNodeMask;
    VkBool32 deviceLUIDValid;
} VkPhysicalDeviceIDProperties;
typedef struct {
    VkEnum sType; void *pNext; VkEnum driverID; char driverName[256], driverInfo[256]; uint8_t conformanceVersion[4];
} VkPhysicalDeviceDriverProperties;
typedef struct {
    VkEnum sType; void *pNext; uint64_t maxTimelineSemaphoreValueDifference;
} VkPhysicalDeviceTimelineSemaphoreProperties;
typedef struct {
    VkEnum sType; void *pNext; uint32_t maxPerSetDescriptors; VkDeviceSize maxMemoryAllocationSize;
} VkPhysicalDeviceMaintenance3Properties;
typedef struct {
    VkEnum sType; void *pNext; VkDeviceSize minImportedHostPointerAlignment;
} VkPhysicalDeviceExternalMemoryHostPropertiesEXT;
typedef struct { VkBool32 all[55]; } VkPhysicalDeviceFeatures;
typedef struct { VkEnum sType; void *pNext; VkPhysicalDeviceFeatures features; } VkPhysicalDeviceFeatures2;
typedef struct {
    VkEnum sType; void *pNext; VkBool32 timelineSemaphore;
} VkPhysicalDeviceTimelineSemaphoreFeatures;
typedef struct { VkFlags propertyFlags; uint32_t heapIndex; } VkMemoryType;
typedef struct { VkDeviceSize size; VkFlags flags; } VkMemoryHeap;
typedef struct {
    uint32_t memoryTypeCount; VkMemoryType memoryTypes[32]; uint32_t memoryHeapCount; VkMemoryHeap memoryHeaps[16];
} VkPhysicalDeviceMemoryProperties;
typedef struct {
    VkFlags queueFlags; uint32_t queueCount, timestampValidBits; VkExtent3D minImageTransferGranularity;
} VkQueueFamilyProperties;

typedef struct { VkEnum sType; const void *pNext; VkEnum handleType; } VkPhysicalDeviceExternalSemaphoreInfo;
typedef struct {
    VkEnum sType; void *pNext;
    VkFlags exportFromImportedHandleTypes, compatibleHandleTypes, externalSemaphoreFeatures;
} VkExternalSemaphoreProperties;
typedef struct {
    VkEnum sType; const void *pNext; VkFlags flags; VkFlags usage; VkEnum handleType;
} VkPhysicalDeviceExternalBufferInfo;
typedef struct {
    VkFlags externalMemoryFeatures, exportFromImportedHandleTypes, compatibleHandleTypes;
} VkExternalMemoryProperties;
typedef struct {
    VkEnum sType; void *pNext; VkExternalMemoryProperties externalMemoryProperties;
} VkExternalBufferProperties;

typedef struct {
    VkEnum sType; const void *pNext; VkFlags flags; uint32_t queueFamilyIndex, queueCount;
    const float *pQueuePriorities;
} VkDeviceQueueCreateInfo;
typedef struct {
    VkEnum sType; const void *pNext; VkFlags flags; uint32_t queueCreateInfoCount;
    const VkDeviceQueueCreateInfo *pQueueCreateInfos; uint32_t enabledLayerCount;
    const char *const *ppEnabledLayerNames; uint32_t enabledExtensionCount;
    const char *const *ppEnabledExtensionNames; const VkPhysicalDeviceFeatures *pEnabledFeatures;
} VkDeviceCreateInfo;

typedef struct { VkEnum sType; const void *pNext; VkFlags flags; } VkSemaphoreCreateInfo;
typedef struct {
    VkEnum sType; const void *pNext; VkEnum semaphoreType; uint64_t initialValue;
} VkSemaphoreTypeCreateInfo;
typedef struct { VkEnum sType; const void *pNext; VkFlags handleTypes; } VkExportSemaphoreCreateInfo;
typedef struct { VkEnum sType; const void *pNext; VkSemaphore semaphore; VkEnum handleType; } VkSemaphoreGetFdInfoKHR;
typedef struct {
    VkEnum sType; const void *pNext; VkSemaphore semaphore; VkFlags flags; VkEnum handleType; int fd;
} VkImportSemaphoreFdInfoKHR;
typedef struct {
    VkEnum sType; const void *pNext; VkFlags flags; uint32_t semaphoreCount; const VkSemaphore *pSemaphores;
    const uint64_t *pValues;
} VkSemaphoreWaitInfo;
typedef struct { VkEnum sType; const void *pNext; VkSemaphore semaphore; uint64_t value; } VkSemaphoreSignalInfo;

typedef struct {
    VkEnum sType; const void *pNext; VkFlags flags; VkDeviceSize size; VkFlags usage; VkEnum sharingMode;
    uint32_t queueFamilyIndexCount; const uint32_t *pQueueFamilyIndices;
} VkBufferCreateInfo;
typedef struct { VkEnum sType; const void *pNext; VkFlags handleTypes; } VkExternalMemoryBufferCreateInfo;
typedef struct { VkEnum sType; const void *pNext; VkBuffer buffer; } VkBufferMemoryRequirementsInfo2;
typedef struct { VkDeviceSize size, alignment; uint32_t memoryTypeBits; } VkMemoryRequirements;
typedef struct { VkEnum sType; void *pNext; VkMemoryRequirements memoryRequirements; } VkMemoryRequirements2;
typedef struct {
    VkEnum sType; void *pNext; VkBool32 prefersDedicatedAllocation, requiresDedicatedAllocation;
} VkMemoryDedicatedRequirements;
typedef struct {
    VkEnum sType; const void *pNext; VkDeviceSize allocationSize; uint32_t memoryTypeIndex;
} VkMemoryAllocateInfo;
typedef struct { VkEnum sType; const void *pNext; VkFlags handleTypes; } VkExportMemoryAllocateInfo;
typedef struct { VkEnum sType; const void *pNext; VkImage image; VkBuffer buffer; } VkMemoryDedicatedAllocateInfo;
typedef struct { VkEnum sType; const void *pNext; VkDeviceMemory memory; VkEnum handleType; } VkMemoryGetFdInfoKHR;
typedef struct { VkEnum sType; const void *pNext; VkEnum handleType; int fd; } VkImportMemoryFdInfoKHR;
typedef struct { VkEnum sType; void *pNext; uint32_t memoryTypeBits; } VkMemoryFdPropertiesKHR;
typedef struct {
    VkEnum sType; const void *pNext; VkEnum handleType; void *pHostPointer;
} VkImportMemoryHostPointerInfoEXT;
typedef struct { VkEnum sType; void *pNext; uint32_t memoryTypeBits; } VkMemoryHostPointerPropertiesEXT;

typedef struct { VkFlags linearTilingFeatures, optimalTilingFeatures, bufferFeatures; } VkFormatProperties;
typedef struct { VkEnum sType; void *pNext; VkFormatProperties formatProperties; } VkFormatProperties2;
typedef struct {
    uint64_t drmFormatModifier; uint32_t drmFormatModifierPlaneCount; VkFlags drmFormatModifierTilingFeatures;
} VkDrmFormatModifierPropertiesEXT;
typedef struct {
    VkEnum sType; void *pNext; uint32_t drmFormatModifierCount;
    VkDrmFormatModifierPropertiesEXT *pDrmFormatModifierProperties;
} VkDrmFormatModifierPropertiesListEXT;
typedef struct {
    VkEnum sType; const void *pNext; uint64_t drmFormatModifier; VkEnum sharingMode; uint32_t queueFamilyIndexCount;
    const uint32_t *pQueueFamilyIndices;
} VkPhysicalDeviceImageDrmFormatModifierInfoEXT;
typedef struct { VkDeviceSize offset, size, rowPitch, arrayPitch, depthPitch; } VkSubresourceLayout;
typedef struct {
    VkEnum sType; const void *pNext; uint64_t drmFormatModifier; uint32_t drmFormatModifierPlaneCount;
    const VkSubresourceLayout *pPlaneLayouts;
} VkImageDrmFormatModifierExplicitCreateInfoEXT;
typedef struct {
    VkEnum sType; const void *pNext; VkEnum format; VkEnum type; VkEnum tiling; VkFlags usage; VkFlags flags;
} VkPhysicalDeviceImageFormatInfo2;
typedef struct { VkEnum sType; const void *pNext; VkEnum handleType; } VkPhysicalDeviceExternalImageFormatInfo;
typedef struct {
    VkExtent3D maxExtent; uint32_t maxMipLevels; uint32_t maxArrayLayers; VkFlags sampleCounts;
    VkDeviceSize maxResourceSize;
} VkImageFormatProperties;
typedef struct {
    VkEnum sType; void *pNext; VkImageFormatProperties imageFormatProperties;
} VkImageFormatProperties2;
typedef struct {
    VkEnum sType; void *pNext; VkExternalMemoryProperties externalMemoryProperties;
} VkExternalImageFormatProperties;
typedef struct {
    VkEnum sType; const void *pNext; VkFlags flags; VkEnum imageType; VkEnum format; VkExtent3D extent;
    uint32_t mipLevels; uint32_t arrayLayers; VkEnum samples; VkEnum tiling; VkFlags usage; VkEnum sharingMode;
    uint32_t queueFamilyIndexCount; const uint32_t *pQueueFamilyIndices; VkEnum initialLayout;
} VkImageCreateInfo;
typedef struct { VkEnum sType; const void *pNext; VkFlags handleTypes; } VkExternalMemoryImageCreateInfo;
typedef struct { VkEnum sType; const void *pNext; VkImage image; } VkImageMemoryRequirementsInfo2;
typedef struct {
    VkFlags aspectMask; uint32_t baseMipLevel; uint32_t levelCount; uint32_t baseArrayLayer; uint32_t layerCount;
} VkImageSubresourceRange;
typedef struct {
    VkEnum sType; const void *pNext; VkFlags srcAccessMask; VkFlags dstAccessMask; VkEnum oldLayout; VkEnum newLayout;
    uint32_t srcQueueFamilyIndex; uint32_t dstQueueFamilyIndex; VkImage image;
    VkImageSubresourceRange subresourceRange;
} VkImageMemoryBarrier;
typedef struct {
    VkFlags aspectMask; uint32_t mipLevel; uint32_t baseArrayLayer; uint32_t layerCount;
} VkImageSubresourceLayers;
typedef struct { int32_t x, y, z; } VkOffset3D;
typedef struct {
    VkDeviceSize bufferOffset; uint32_t bufferRowLength; uint32_t bufferImageHeight;
    VkImageSubresourceLayers imageSubresource; VkOffset3D imageOffset; VkExtent3D imageExtent;
} VkBufferImageCopy;
typedef struct {
    VkImageSubresourceLayers srcSubresource; VkOffset3D srcOffset; VkImageSubresourceLayers dstSubresource;
    VkOffset3D dstOffset; VkExtent3D extent;
} VkImageCopy;

typedef struct { VkEnum sType; const void *pNext; VkFlags flags; uint32_t queueFamilyIndex; } VkCommandPoolCreateInfo;
typedef struct {
    VkEnum sType; const void *pNext; VkCommandPool commandPool; VkEnum level; uint32_t commandBufferCount;
} VkCommandBufferAllocateInfo;
typedef struct {
    VkEnum sType; const void *pNext; VkFlags flags; const void *pInheritanceInfo;
} VkCommandBufferBeginInfo;
typedef struct { VkEnum sType; const void *pNext; VkFlags srcAccessMask, dstAccessMask; } VkMemoryBarrier;
typedef struct {
    VkEnum sType; const void *pNext; VkFlags srcAccessMask, dstAccessMask; uint32_t srcQueueFamilyIndex,
    dstQueueFamilyIndex; VkBuffer buffer; VkDeviceSize offset, size;
} VkBufferMemoryBarrier;
typedef struct { VkDeviceSize srcOffset, dstOffset, size; } VkBufferCopy;
typedef struct {
    VkEnum sType; const void *pNext; uint32_t waitSemaphoreCount; const VkSemaphore *pWaitSemaphores;
    const VkFlags *pWaitDstStageMask; uint32_t commandBufferCount; const VkCommandBuffer *pCommandBuffers;
    uint32_t signalSemaphoreCount; const VkSemaphore *pSignalSemaphores;
} VkSubmitInfo;
typedef struct {
    VkEnum sType; const void *pNext; uint32_t waitSemaphoreValueCount; const uint64_t *pWaitSemaphoreValues;
    uint32_t signalSemaphoreValueCount; const uint64_t *pSignalSemaphoreValues;
} VkTimelineSemaphoreSubmitInfo;
"""

# Prototypes of the functions. Every pointer to an allocator is NULL here.
FUNCTIONS: Final = """
void *vkGetInstanceProcAddr(VkInstance, const char *);
VkResult vkEnumerateInstanceVersion(uint32_t *);
VkResult vkCreateInstance(const VkInstanceCreateInfo *, const void *, VkInstance *);
void vkDestroyInstance(VkInstance, const void *);
VkResult vkEnumeratePhysicalDevices(VkInstance, uint32_t *, VkPhysicalDevice *);
void vkGetPhysicalDeviceProperties(VkPhysicalDevice, VkPhysicalDeviceProperties *);
void vkGetPhysicalDeviceProperties2(VkPhysicalDevice, VkPhysicalDeviceProperties2 *);
void vkGetPhysicalDeviceFeatures2(VkPhysicalDevice, VkPhysicalDeviceFeatures2 *);
void vkGetPhysicalDeviceMemoryProperties(VkPhysicalDevice, VkPhysicalDeviceMemoryProperties *);
void vkGetPhysicalDeviceQueueFamilyProperties(VkPhysicalDevice, uint32_t *, VkQueueFamilyProperties *);
VkResult vkEnumerateDeviceExtensionProperties(VkPhysicalDevice, const char *, uint32_t *, VkExtensionProperties *);
void vkGetPhysicalDeviceExternalSemaphoreProperties(VkPhysicalDevice,
    const VkPhysicalDeviceExternalSemaphoreInfo *, VkExternalSemaphoreProperties *);
void vkGetPhysicalDeviceExternalBufferProperties(VkPhysicalDevice,
    const VkPhysicalDeviceExternalBufferInfo *, VkExternalBufferProperties *);
void vkGetPhysicalDeviceFormatProperties2(VkPhysicalDevice, VkEnum, VkFormatProperties2 *);
VkResult vkGetPhysicalDeviceImageFormatProperties2(VkPhysicalDevice,
    const VkPhysicalDeviceImageFormatInfo2 *, VkImageFormatProperties2 *);
VkResult vkCreateDevice(VkPhysicalDevice, const VkDeviceCreateInfo *, const void *, VkDevice *);
void *vkGetDeviceProcAddr(VkDevice, const char *);
void vkDestroyDevice(VkDevice, const void *);
void vkGetDeviceQueue(VkDevice, uint32_t, uint32_t, VkQueue *);
VkResult vkQueueSubmit(VkQueue, uint32_t, const VkSubmitInfo *, VkFence);
VkResult vkCreateSemaphore(VkDevice, const VkSemaphoreCreateInfo *, const void *, VkSemaphore *);
void vkDestroySemaphore(VkDevice, VkSemaphore, const void *);
VkResult vkGetSemaphoreCounterValue(VkDevice, VkSemaphore, uint64_t *);
VkResult vkWaitSemaphores(VkDevice, const VkSemaphoreWaitInfo *, uint64_t);
VkResult vkSignalSemaphore(VkDevice, const VkSemaphoreSignalInfo *);
VkResult vkGetSemaphoreFdKHR(VkDevice, const VkSemaphoreGetFdInfoKHR *, int *);
VkResult vkImportSemaphoreFdKHR(VkDevice, const VkImportSemaphoreFdInfoKHR *);
VkResult vkCreateBuffer(VkDevice, const VkBufferCreateInfo *, const void *, VkBuffer *);
void vkDestroyBuffer(VkDevice, VkBuffer, const void *);
void vkGetBufferMemoryRequirements2(VkDevice, const VkBufferMemoryRequirementsInfo2 *, VkMemoryRequirements2 *);
VkResult vkAllocateMemory(VkDevice, const VkMemoryAllocateInfo *, const void *, VkDeviceMemory *);
void vkFreeMemory(VkDevice, VkDeviceMemory, const void *);
VkResult vkBindBufferMemory(VkDevice, VkBuffer, VkDeviceMemory, VkDeviceSize);
VkResult vkCreateImage(VkDevice, const VkImageCreateInfo *, const void *, VkImage *);
void vkDestroyImage(VkDevice, VkImage, const void *);
void vkGetImageMemoryRequirements2(VkDevice, const VkImageMemoryRequirementsInfo2 *, VkMemoryRequirements2 *);
VkResult vkBindImageMemory(VkDevice, VkImage, VkDeviceMemory, VkDeviceSize);
VkResult vkMapMemory(VkDevice, VkDeviceMemory, VkDeviceSize, VkDeviceSize, VkFlags, void **);
VkResult vkGetMemoryFdKHR(VkDevice, const VkMemoryGetFdInfoKHR *, int *);
VkResult vkGetMemoryFdPropertiesKHR(VkDevice, VkEnum, int, VkMemoryFdPropertiesKHR *);
VkResult vkGetMemoryHostPointerPropertiesEXT(VkDevice, VkEnum, const void *, VkMemoryHostPointerPropertiesEXT *);
VkResult vkCreateCommandPool(VkDevice, const VkCommandPoolCreateInfo *, const void *, VkCommandPool *);
void vkDestroyCommandPool(VkDevice, VkCommandPool, const void *);
VkResult vkAllocateCommandBuffers(VkDevice, const VkCommandBufferAllocateInfo *, VkCommandBuffer *);
VkResult vkBeginCommandBuffer(VkCommandBuffer, const VkCommandBufferBeginInfo *);
VkResult vkEndCommandBuffer(VkCommandBuffer);
void vkCmdPipelineBarrier(VkCommandBuffer, VkFlags, VkFlags, VkFlags, uint32_t, const VkMemoryBarrier *,
    uint32_t, const VkBufferMemoryBarrier *, uint32_t, const VkImageMemoryBarrier *);
void vkCmdCopyBuffer(VkCommandBuffer, VkBuffer, VkBuffer, uint32_t, const VkBufferCopy *);
void vkCmdCopyImageToBuffer(VkCommandBuffer, VkImage, VkEnum, VkBuffer, uint32_t, const VkBufferImageCopy *);
void vkCmdCopyBufferToImage(VkCommandBuffer, VkBuffer, VkImage, VkEnum, uint32_t, const VkBufferImageCopy *);
void vkCmdCopyImage(VkCommandBuffer, VkImage, VkEnum, VkImage, VkEnum, uint32_t, const VkImageCopy *);
void vkCmdFillBuffer(VkCommandBuffer, VkBuffer, VkDeviceSize, VkDeviceSize, uint32_t);
"""
