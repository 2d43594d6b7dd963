package app

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
)

// listen opens the HTTP listener. Only the default address gives way to a
// free port: somebody who named an address expects it there.
func listen(cfg config.Config, logger *slog.Logger) (net.Listener, error) {
	address := cfg.HTTP.Address
	listener, err := net.Listen("tcp", address)
	if err == nil {
		return listener, nil
	}
	isDefault := config.IsDefaultHTTPAddress(address) && !cfg.Explicit("http-address")
	if !isDefault || !errors.Is(err, syscall.EADDRINUSE) {
		return nil, &config.Error{
			Name: "http-address", Value: address, Origin: cfg.Origin("http-address"), Problem: "cannot be listened on", Err: err,
			Advice: "choose another with --http-address; port 0 takes a free one",
		}
	}
	listener, fallbackErr := net.Listen("tcp", "127.0.0.1:0")
	if fallbackErr != nil {
		return nil, fmt.Errorf("listening on a free port, because %s is taken: %w", address, fallbackErr)
	}
	logger.Warn("the default HTTP port is taken; using a free one", "taken", address, "address", listener.Addr().String(),
		"hint", "set --http-address to choose")
	return listener, nil
}
