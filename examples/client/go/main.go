// Asks Headgate for one decision with Envoy's own stubs: go run . 127.0.0.1:8081 alice
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func main() {
	addr, user := os.Args[1], os.Args[2]
	conn, err := grpc.NewClient("dns:///"+addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// Over all addresses of a headless Service, not the first one alone.
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	client := ratelimit.NewRateLimitServiceClient(conn)

	// The first call connects; the ones after it need far less.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	response, err := client.ShouldRateLimit(ctx, &ratelimit.RateLimitRequest{
		Domain: "edge",
		Descriptors: []*common.RateLimitDescriptor{{
			Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: user}},
		}},
		HitsAddend: 1,
	})
	if err != nil {
		// No decision: let the request pass, and count that you did.
		fmt.Println("failed open:", err)
		return
	}
	status := response.Statuses[0]
	if response.OverallCode == ratelimit.RateLimitResponse_OVER_LIMIT {
		fmt.Println("denied, again in", status.DurationUntilReset.AsDuration())
		return
	}
	fmt.Println("allowed,", status.LimitRemaining, "left")
}
