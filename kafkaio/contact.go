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

// answered reports how long there was no contact, zero if there was.
func (c *contact) answered() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	var away time.Duration
	if c.err != nil {
		away = time.Since(c.last)
	}
	c.last, c.err = time.Now(), nil
	return away
}

// failed reports whether this is the first failure since the last answer.
func (c *contact) failed(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.err == nil
	c.err = err
	return first
}

func (c *contact) state() (time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last, c.err
}
