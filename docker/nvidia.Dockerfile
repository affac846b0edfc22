# gpu-executor on NVIDIA GPUs. The NVIDIA Container Toolkit mounts the driver: docker run --gpus all.
FROM python:3.13-slim
# The driver's Vulkan library links against X11 and GLVND.
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        libvulkan1 libglvnd0 libgl1 libegl1 libx11-6 libxext6 glslc spirv-tools \
    && rm -rf /var/lib/apt/lists/*
COPY pyproject.toml README.md LICENSE /source/
COPY src /source/src
RUN pip install --no-cache-dir '/source[metrics]' && rm -rf /source \
    && useradd --create-home user && install -d -o user -m 0700 /cache
# Vulkan belongs to the capability "graphics", which containers do not get by default.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,graphics,utility \
    GPU_CACHE_DIR=/cache
USER user
WORKDIR /home/user
CMD ["gpu-executor", "doctor"]
