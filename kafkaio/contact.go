package kafkaio

import (
	"sync"
	"time"
)

// contact remembers when a broker last answered.
type contact struct {
	mu   sync.Mutex
	last time.Time
	err  error
}

func (c *contact) answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.err = time.Now(), nil
}

func (c *contact) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

func (c *contact) state() (time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last, c.err
}
