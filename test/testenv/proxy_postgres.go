//go:build unix

package testenv

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// PostgresProxy is a Proxy that understands PostgreSQL's messages, so that a
// fault hits an exact moment of a transaction. Connections must not use TLS.
type PostgresProxy struct {
	*Proxy

	mu     sync.Mutex
	refuse *pgproto3.ErrorResponse // answer to new connections; nil: none
	fault  *answerFault            // armed; nil: none
}

// answerFault waits for the answer to lose.
type answerFault struct {
	tag   string
	then  verdict
	fired chan struct{}
}

// StartPostgresProxy starts a proxy for one test in front of a PostgreSQL
// server ("host:port").
func StartPostgresProxy(t testing.TB, target string) *PostgresProxy {
	t.Helper()
	p := &PostgresProxy{}
	proxy, err := newProxy(target, p.greet, p.inspectors)
	if err != nil {
		t.Fatal(err)
	}
	p.Proxy = proxy
	t.Cleanup(proxy.Close)
	return p
}

// Refuse answers new connections with an error, such as SQLSTATE 57P03 ("the
// database system is starting up") or 53300 ("sorry, too many clients
// already"), until Admit. Connections that exist are not touched: see Sever.
func (p *PostgresProxy) Refuse(sqlstate, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = &pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: sqlstate, Message: message}
}

// Admit ends Refuse.
func (p *PostgresProxy) Admit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = nil
}

// LoseAnswer arms one fault: the server's next answer whose command tag begins
// with tag, such as "COMMIT", is lost with its connection. The server has done
// what it was asked by then, and the client cannot know. The channel is closed
// when it has happened.
func (p *PostgresProxy) LoseAnswer(tag string) <-chan struct{} { return p.arm(tag, sever) }

// HangAnswer is LoseAnswer with a connection that stays open and silent.
func (p *PostgresProxy) HangAnswer(tag string) <-chan struct{} { return p.arm(tag, silence) }

func (p *PostgresProxy) arm(tag string, then verdict) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = &answerFault{tag: tag, then: then, fired: make(chan struct{})}
	return p.fault.fired
}

// The codes that stand where a start-up message has its protocol version.
const (
	cancelRequest = 80877102
	tlsRequest    = 80877103
	gssRequest    = 80877104
	maxStartup    = 10_000
)

// greet reads the client's first message, which alone has no type byte.
func (p *PostgresProxy) greet(client net.Conn) (first []byte, plain bool, err error) {
	for {
		head := make([]byte, 8)
		if _, err := io.ReadFull(client, head); err != nil {
			return nil, false, err
		}
		length, code := binary.BigEndian.Uint32(head), binary.BigEndian.Uint32(head[4:])
		if length < 8 || length > maxStartup {
			return nil, false, errors.New("not a start-up message")
		}
		message := append(head, make([]byte, length-8)...)
		if _, err := io.ReadFull(client, message[8:]); err != nil {
			return nil, false, err
		}
		switch code {
		case tlsRequest, gssRequest:
			if _, err := client.Write([]byte("N")); err != nil {
				return nil, false, err
			}
		case cancelRequest:
			return message, true, nil
		default:
			return message, false, p.mayRefuse(client)
		}
	}
}

func (p *PostgresProxy) mayRefuse(client net.Conn) error {
	p.mu.Lock()
	refuse := p.refuse
	p.mu.Unlock()
	if refuse == nil {
		return nil
	}
	message, err := refuse.Encode(nil)
	if err != nil {
		return err
	}
	if _, err := client.Write(message); err != nil {
		return err
	}
	return errors.New("refused")
}

func (p *PostgresProxy) inspectors() (toServer, toClient inspector) {
	return nil, (&answers{proxy: p}).inspect
}

// answers cuts the server's stream into messages: a type byte, a length that
// counts itself, a body.
type answers struct {
	proxy *PostgresProxy
	buf   []byte
}

func (a *answers) inspect(chunk []byte) (forward []byte, then verdict) {
	a.buf = append(a.buf, chunk...)
	for len(a.buf) >= 5 {
		size := 1 + int(binary.BigEndian.Uint32(a.buf[1:]))
		if len(a.buf) < size {
			break
		}
		message := a.buf[:size]
		if then := a.proxy.strikes(message); then != carryOn {
			return forward, then
		}
		forward = append(forward, message...)
		a.buf = a.buf[size:]
	}
	return forward, carryOn
}

// strikes says whether the armed fault hits this message.
func (p *PostgresProxy) strikes(message []byte) verdict {
	const commandComplete = 'C'
	if message[0] != commandComplete {
		return carryOn
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault == nil || !strings.HasPrefix(string(message[5:]), p.fault.tag) {
		return carryOn
	}
	then := p.fault.then
	close(p.fault.fired)
	p.fault = nil
	return then
}
