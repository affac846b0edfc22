# gpu-executor on lavapipe, Mesa's software Vulkan driver. With `--device /dev/dri`, also on AMD and Intel GPUs.
FROM python:3.13-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends libvulkan1 mesa-vulkan-drivers glslc spirv-tools \
    && rm -rf /var/lib/apt/lists/*
COPY pyproject.toml README.md LICENSE /source/
COPY src /source/src
RUN pip install --no-cache-dir '/source[webgpu,metrics]' && rm -rf /source \
    && useradd --create-home user && install -d -o user -m 0700 /cache
ENV GPU_CACHE_DIR=/cache
USER user
WORKDIR /home/user
CMD ["gpu-executor", "doctor"]
