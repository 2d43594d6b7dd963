// Package freeport finds ports for servers that are to be restarted on them.
package freeport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// The range from which no system takes the local port of an outgoing
// connection. A port from above it could be lost to one while its server is
// down, and the server could not come back.
const (
	lowest  = 20000
	highest = 32000
)

// Take returns n different ports that are free on 127.0.0.1 now. Another
// process can take one before the caller does, so a caller tries again when
// that happened.
func Take(ctx context.Context, n int) ([]int, error) {
	var ports []int
	var held []net.Listener
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	var last error
	for range 50 + 10*n {
		if len(ports) == n {
			return ports, nil
		}
		port := lowest + rand.IntN(highest-lowest)
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			last = err
			continue
		}
		held = append(held, l)
		ports = append(ports, port)
	}
	if len(ports) == n {
		return ports, nil
	}
	return nil, fmt.Errorf("finding %d free ports on 127.0.0.1: %w", n, errors.Join(context.Cause(ctx), last))
}
