import com.google.protobuf.Duration;
import io.envoyproxy.envoy.extensions.common.ratelimit.v3.RateLimitDescriptor;
import io.envoyproxy.envoy.service.ratelimit.v3.RateLimitRequest;
import io.envoyproxy.envoy.service.ratelimit.v3.RateLimitResponse;
import io.envoyproxy.envoy.service.ratelimit.v3.RateLimitServiceGrpc;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.StatusRuntimeException;
import java.util.concurrent.TimeUnit;

/** Asks Headgate for one decision with Envoy's own stubs: mvn -q compile exec:java -Dexec.args="127.0.0.1:8081 alice" */
public class Ask {
    public static void main(String[] args) throws InterruptedException {
        ManagedChannel channel = ManagedChannelBuilder.forTarget("dns:///" + args[0])
            .usePlaintext()
            // Over all addresses of a headless Service, not the first one alone.
            .defaultLoadBalancingPolicy("round_robin")
            .build();
        RateLimitRequest request = RateLimitRequest.newBuilder()
            .setDomain("edge")
            .addDescriptors(RateLimitDescriptor.newBuilder()
                .addEntries(RateLimitDescriptor.Entry.newBuilder().setKey("user").setValue(args[1])))
            .setHitsAddend(1)
            .build();
        try {
            // The first call connects, on a cold JVM; the ones after it need far less.
            RateLimitResponse response = RateLimitServiceGrpc.newBlockingStub(channel)
                .withDeadlineAfter(10, TimeUnit.SECONDS)
                .shouldRateLimit(request);
            RateLimitResponse.DescriptorStatus status = response.getStatuses(0);
            if (response.getOverallCode() == RateLimitResponse.Code.OVER_LIMIT) {
                Duration reset = status.getDurationUntilReset();
                System.out.println("denied, again in " + (reset.getSeconds() + reset.getNanos() / 1e9) + " s");
            } else {
                System.out.println("allowed, " + status.getLimitRemaining() + " left");
            }
        } catch (StatusRuntimeException error) {
            // No decision: let the request pass, and count that you did.
            System.out.println("failed open: " + error.getStatus());
        }
        channel.shutdownNow().awaitTermination(5, TimeUnit.SECONDS);
    }
}
