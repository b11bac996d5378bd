# A static keelson on nothing but its certificates and folders. `make image` builds it: scripts/image.sh makes rootfs.tar.
FROM scratch
ADD rootfs.tar /
ARG VERSION
ARG REVISION
ARG CREATED
LABEL org.opencontainers.image.title="keelson" \
      org.opencontainers.image.description="A drop-in replacement for kube-apiserver" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.created="$CREATED"
ENV PATH=/usr/local/bin
VOLUME /data
EXPOSE 6443
ENTRYPOINT ["keelson"]
CMD ["--data-dir=/data"]
