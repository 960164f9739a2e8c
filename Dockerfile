# One image for server, feeder and client: the `mavstream` command decides.
FROM python:3.11-slim AS build
WORKDIR /src
RUN python -m venv /opt/mavstream
COPY pyproject.toml README.md ./
COPY protocol protocol
COPY client client
COPY server server
COPY feeder feeder
RUN /opt/mavstream/bin/pip install --no-cache-dir --disable-pip-version-check '.[server]'

FROM python:3.11-slim
RUN useradd --system --uid 10001 --home-dir /data mavstream \
    && install --directory --owner mavstream /data
COPY --from=build /opt/mavstream /opt/mavstream
ENV PATH=/opt/mavstream/bin:$PATH PYTHONUNBUFFERED=1
USER mavstream
WORKDIR /data
VOLUME /data
EXPOSE 8000
ENTRYPOINT ["mavstream"]
# Loopback inside the container only. To be reached from outside it needs --host 0.0.0.0 and MAVSTREAM_TOKENS.
CMD ["serve", "--data", "/data"]
