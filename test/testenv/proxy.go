//go:build unix

package testenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded/freeport"
)

// Direction says which way bytes flow.
type Direction uint8

// The directions, as a set.
const (
	ToServer Direction = 1 << iota
	ToClient
	BothWays = ToServer | ToClient
)

// Proxy passes TCP connections on to a server, as long as the test lets it.
// It starts healthy. The methods may be called from several goroutines.
type Proxy struct {
	addr    string
	greet   greeter
	inspect func() (toServer, toClient inspector)
	work    sync.WaitGroup

	mu        sync.Mutex
	target    string
	listener  net.Listener // nil while refusing
	swallowed Direction
	latency   time.Duration
	onlySmall bool
	closed    bool
	conns     map[*proxied]struct{}
}

// greeter speaks with a client before there is a server behind it, and
// returns what to send to the server first. An error ends the connection.
type greeter func(client net.Conn) (first []byte, plain bool, err error)

// inspector gets the bytes of one direction as they come, says which of them
// go on, and then what becomes of the connection.
type inspector func(chunk []byte) (forward []byte, then verdict)

type verdict uint8

const (
	carryOn verdict = iota
	sever           // close both sides
	silence         // forward nothing more, either way
)

// NewProxy starts a proxy in front of target ("host:port"; empty means none
// yet, see Retarget).
func NewProxy(target string) (*Proxy, error) {
	return newProxy(target, nil, nil)
}

func newProxy(target string, greet greeter, inspect func() (toServer, toClient inspector)) (*Proxy, error) {
	p := &Proxy{target: target, greet: greet, inspect: inspect, conns: map[*proxied]struct{}{}}
	const attempts = 5
	for attempt := 1; ; attempt++ {
		ports, err := freeport.Take(context.Background(), 1)
		if err != nil {
			return nil, fmt.Errorf("starting a proxy: %w", err)
		}
		p.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))
		if err = p.listen(); err == nil {
			return p, nil
		}
		if attempt == attempts || !errors.Is(err, syscall.EADDRINUSE) {
			return nil, err
		}
	}
}

// StartProxy is NewProxy for one test.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p, err := NewProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Addr is the address to connect to, "127.0.0.1:port". It never changes.
func (p *Proxy) Addr() string { return p.addr }

// DSN returns a PostgreSQL connection string of the URL form with the proxy's
// address in the place of the server's.
func (p *Proxy) DSN(t testing.TB, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = p.addr
	return u.String()
}

// Cut closes every connection and refuses new ones, as when the server's
// process is gone.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	p.severAll()
}

// Sever closes every connection, and accepts new ones.
func (p *Proxy) Sever() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.severAll()
}

// Swallow makes the network a black hole in one direction or both: bytes are
// taken and lost, connections stay and new ones are accepted.
func (p *Proxy) Swallow(d Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swallowed = d
}

// Silence makes every connection that there is silent, both ways and for good,
// without closing it, and accepts new ones: a firewall forgot its connections.
func (p *Proxy) Silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.silent, c.lossy = true, true
	}
}

// Latency delays every byte, each way. Zero, as at the start, does not.
func (p *Proxy) Latency(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = d
}

// OnlySmall makes a connection silent, both ways and for good, at the first large packet to
// the server (32 KiB), as a path does that loses large packets. false ends that for new connections.
func (p *Proxy) OnlySmall(only bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onlySmall = only
}

// Retarget sends new connections to another server and closes those to the
// old one, as a fail-over does.
func (p *Proxy) Retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
	p.severAll()
}

// Heal ends what Cut and Swallow began. Connections of which bytes were lost
// are closed; the others go on.
func (p *Proxy) Heal() {
	p.mu.Lock()
	p.swallowed = 0
	for c := range p.conns {
		if c.lossy {
			c.close()
		}
	}
	p.mu.Unlock()
	if err := p.listen(); err != nil {
		panic(err) // the port was ours, and is from a range that nobody is given
	}
}

func (p *Proxy) listen() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil || p.closed {
		return nil
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", p.addr)
	if err != nil {
		return fmt.Errorf("listening for the proxy: %w", err)
	}
	p.listener = l
	p.work.Go(func() { p.accept(l) })
	return nil
}

// Close ends the proxy and its connections.
func (p *Proxy) Close() {
	p.Cut()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.work.Wait()
}

// severAll needs the mutex.
func (p *Proxy) severAll() {
	for c := range p.conns {
		c.close()
	}
}

func (p *Proxy) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return // closed by Cut
		}
		c := &proxied{proxy: p, client: conn}
		p.mu.Lock()
		if p.listener != l { // cut meanwhile
			p.mu.Unlock()
			conn.Close()
			continue
		}
		p.conns[c] = struct{}{}
		p.work.Go(c.run)
		p.mu.Unlock()
	}
}

// proxied is one connection and its two halves.
type proxied struct {
	proxy  *Proxy
	client net.Conn

	// guarded by proxy.mu
	server   net.Conn
	isClosed bool
	lossy    bool // bytes were lost, so the stream must not go on
	silent   bool // by the inspector's verdict
}

func (c *proxied) run() {
	defer func() {
		c.proxy.mu.Lock()
		defer c.proxy.mu.Unlock()
		c.close()
		delete(c.proxy.conns, c)
	}()
	if c.swallows(ToServer) {
		c.drain()
		return
	}
	var first []byte
	plain := true
	if c.proxy.greet != nil {
		var err error
		if first, plain, err = c.proxy.greet(c.client); err != nil {
			return
		}
	}
	if !c.dial() {
		return
	}
	if _, err := c.server.Write(first); err != nil {
		return
	}
	var toServer, toClient inspector
	if c.proxy.inspect != nil && !plain {
		toServer, toClient = c.proxy.inspect()
	}
	var halves sync.WaitGroup
	halves.Go(func() { c.pump(ToServer, c.client, c.server, toServer) })
	halves.Go(func() { c.pump(ToClient, c.server, c.client, toClient) })
	halves.Wait()
}

// dial connects to the current target.
func (c *proxied) dial() bool {
	c.proxy.mu.Lock()
	target := c.proxy.target
	c.proxy.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	server, err := new(net.Dialer).DialContext(ctx, "tcp", target)
	if err != nil {
		return false // a client sees the end of its connection
	}
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	if c.isClosed || target != c.proxy.target {
		server.Close()
		return false
	}
	c.server = server
	return true
}

// drain takes what the client says, and loses it.
func (c *proxied) drain() {
	buf := make([]byte, 4096)
	for {
		if _, err := c.client.Read(buf); err != nil {
			return
		}
	}
}

// chunk is what was read at once, and when it may arrive.
type chunk struct {
	bytes []byte
	due   time.Time
}

// pump carries the bytes of one direction. Reading and writing are apart, so
// that latency delays bytes without slowing them down.
func (c *proxied) pump(d Direction, from, to net.Conn, inspect inspector) {
	queue := make(chan chunk, 256)
	written := make(chan struct{})
	go func() {
		defer close(written)
		failed := false
		for next := range queue {
			if wait := time.Until(next.due); wait > 0 {
				time.Sleep(wait)
			}
			if failed || c.swallows(d) {
				continue
			}
			forward, then := next.bytes, carryOn
			if inspect != nil {
				forward, then = inspect(next.bytes)
			}
			if _, err := to.Write(forward); err != nil {
				failed = true
			}
			if then != carryOn {
				c.obey(then)
			}
		}
	}()
	for {
		buf := make([]byte, 32<<10)
		n, err := from.Read(buf)
		if n == len(buf) && d == ToServer && c.isSmallPath() {
			c.obey(silence)
		}
		if n > 0 {
			queue <- chunk{bytes: buf[:n], due: time.Now().Add(c.latency())}
		}
		if err != nil {
			break
		}
	}
	close(queue)
	<-written
	if !c.swallows(d) {
		c.closeBoth()
	}
}

func (c *proxied) latency() time.Duration {
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	return c.proxy.latency
}

func (c *proxied) isSmallPath() bool {
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	return c.proxy.onlySmall
}

// swallows reports whether bytes of direction d are to be lost now, and
// remembers it.
func (c *proxied) swallows(d Direction) bool {
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	if c.silent || c.proxy.swallowed&d != 0 {
		c.lossy = true
		return true
	}
	return false
}

func (c *proxied) obey(v verdict) {
	switch v {
	case sever:
		c.closeBoth()
	case silence:
		c.proxy.mu.Lock()
		defer c.proxy.mu.Unlock()
		c.silent, c.lossy = true, true
	case carryOn:
	}
}

func (c *proxied) closeBoth() {
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	c.close()
}

// close needs the proxy's mutex.
func (c *proxied) close() {
	if c.isClosed {
		return
	}
	c.isClosed = true
	c.client.Close()
	if c.server != nil {
		c.server.Close()
	}
}
