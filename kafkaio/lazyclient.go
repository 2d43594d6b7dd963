package kafkaio

import (
	"fmt"
	"log/slog"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// lazyClient is one client that is created when it is first needed. It is safe
// for concurrent use.
type lazyClient struct {
	config ClientConfig
	logger *slog.Logger

	mu     sync.Mutex
	client *kgo.Client
	closed bool
}

func (l *lazyClient) get() (*kgo.Client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, errClientClosed
	case l.client != nil:
		return l.client, nil
	}
	opts, err := l.config.Options(l.logger)
	if err != nil {
		return nil, err
	}
	if l.client, err = kgo.NewClient(opts...); err != nil {
		return nil, fmt.Errorf("creating a kafka client: %w", err)
	}
	return l.client, nil
}

func (l *lazyClient) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.client != nil {
		l.client.Close()
		l.client = nil
	}
}
