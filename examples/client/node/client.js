// Asks Headgate for one decision with Envoy's own protos: node client.js 127.0.0.1:8081 alice
const path = require("node:path");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

// Envoy's API comes with gRPC's xDS package.
const deps = path.join(path.dirname(require.resolve("@grpc/grpc-js-xds/package.json")), "deps");
const protos = loader.loadSync("envoy/service/ratelimit/v3/rls.proto", {
  includeDirs: ["envoy-api", "xds", "protoc-gen-validate", "googleapis"].map((name) => path.join(deps, name)),
  keepCase: true,
  enums: String,
  defaults: true,
});
const { RateLimitService } = grpc.loadPackageDefinition(protos).envoy.service.ratelimit.v3;

const [addr, user] = process.argv.slice(2);
const client = new RateLimitService(`dns:///${addr}`, grpc.credentials.createInsecure(), {
  // Over all addresses of a headless Service, not the first one alone.
  "grpc.service_config": JSON.stringify({ loadBalancingConfig: [{ round_robin: {} }] }),
});
const request = { domain: "edge", descriptors: [{ entries: [{ key: "user", value: user }] }], hits_addend: 1 };

// The first call connects; the ones after it need far less.
client.ShouldRateLimit(request, { deadline: Date.now() + 1000 }, (error, response) => {
  if (error) {
    // No decision: let the request pass, and count that you did.
    console.log("failed open:", error.message);
  } else if (response.overall_code === "OVER_LIMIT") {
    const { seconds, nanos } = response.statuses[0].duration_until_reset;
    console.log("denied, again in", Number(seconds) + nanos / 1e9, "s");
  } else {
    console.log("allowed,", response.statuses[0].limit_remaining, "left");
  }
  client.close();
});
