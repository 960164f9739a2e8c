# One image for server, feeder and client: the `mavstream` command decides.
FROM python:3.11-slim AS build
WORKDIR /src
RUN python -m venv /opt/mavstream
COPY pyproject.toml README.md LICENSE ./
COPY protocol protocol
COPY client client
COPY server server
COPY feeder feeder
COPY page page
COPY spark spark
COPY experiments experiments
ARG EXTRAS=server,page
RUN /opt/mavstream/bin/pip install --no-cache-dir --disable-pip-version-check ".[${EXTRAS}]"

FROM python:3.11-slim
RUN useradd --system --uid 10001 --home-dir /data mavstream \
    && install --directory --owner mavstream /data /feed /tokens /admin-token /feeder-token
# Only the data jobs need Java.
ARG JAVA=
RUN if [ -n "$JAVA" ]; then apt-get update && apt-get install -y --no-install-recommends default-jre-headless \
    && rm -rf /var/lib/apt/lists/*; fi
COPY --from=build /opt/mavstream /opt/mavstream
ENV PATH=/opt/mavstream/bin:$PATH PYTHONUNBUFFERED=1
USER mavstream
WORKDIR /data
VOLUME /data
EXPOSE 8000 8001
ENTRYPOINT ["mavstream"]
# Loopback inside the container only. To be reached from outside it needs --host 0.0.0.0 and tokens.
CMD ["serve", "--data", "/data"]
