package app

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
)

func TestOnlyTheDefaultPortGivesWay(t *testing.T) {
	t.Parallel()
	// Somebody listens on the default port: this test, unless it is taken already.
	if taken, err := net.Listen("tcp", config.DefaultHTTPAddress); err == nil {
		defer taken.Close()
	}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))

	cfg := config.Default()
	listener, err := listen(cfg, logger)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if !strings.Contains(log.String(), config.DefaultHTTPAddress) || !strings.Contains(log.String(), listener.Addr().String()) {
		t.Errorf("the log does not name both addresses: %s", &log)
	}

	cfg, err = config.Load(config.Sources{LookupEnv: func(name string) (string, bool) {
		return config.DefaultHTTPAddress, name == "ORDERPROJECTOR_HTTP_ADDRESS"
	}})
	if err != nil {
		t.Fatal(err)
	}
	if second, err := listen(cfg, logger); err == nil {
		second.Close()
		t.Error("an explicit address that is taken was replaced")
	}
	cfg.HTTP.Address = listener.Addr().String()
	if second, err := listen(cfg, logger); err == nil {
		second.Close()
		t.Error("another address that is taken was replaced")
	}
}
