// Package receiver is a receiver of notifications that is not idempotent, on a network that is
// not good: what reaches it twice is done twice, so that the sender has to see to it.
package receiver

import (
	"crypto/hmac"
	"hash/fnv"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/orderprojector/orderprojector/projection/webhook"
)

const maxBody = 64 << 10

// Receiver counts how often it has acted on each idempotency key. It is safe for concurrent use.
type Receiver struct {
	secret string
	server *http.Server
	addr   string

	mu                sync.Mutex
	calls, acted      map[string]int
	cut, busy, failed int
}

// Trouble is what went wrong on the receiver's side.
type Trouble struct {
	Cut    int // connections that broke after it had acted and before it said so
	Busy   int // answers 429
	Failed int // answers 500
}

// Start listens on a free port of 127.0.0.1.
func Start(secret string) (*Receiver, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Receiver{secret: secret, addr: listener.Addr().String(), calls: map[string]int{}, acted: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /notifications", r.take)
	mux.HandleFunc("GET /notifications/{key}", r.answer)
	r.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = r.server.Serve(listener) }() // until Close
	return r, nil
}

// URL takes notifications.
func (r *Receiver) URL() string { return "http://" + r.addr + "/notifications" }

// StatusURL says whether it has acted on a key.
func (r *Receiver) StatusURL() string { return r.URL() + "/{key}" }

// Close ends it.
func (r *Receiver) Close() error { return r.server.Close() }

// Acted returns how often it has acted, by idempotency key.
func (r *Receiver) Acted() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.acted)
}

// Trouble says what went wrong so far.
func (r *Receiver) Trouble() Trouble {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Trouble{r.cut, r.busy, r.failed}
}

func (r *Receiver) take(out http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(out, req.Body, maxBody))
	if err != nil {
		return
	}
	if !r.signed(req, body) {
		http.Error(out, "the signature is wrong", http.StatusUnauthorized)
		return
	}
	key := req.Header.Get(webhook.HeaderIdempotencyKey)
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	luck := h.Sum32() % 1000

	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[key]++
	first := r.calls[key] == 1
	switch {
	case first && luck < 10:
		r.failed++
		http.Error(out, "try again", http.StatusInternalServerError)
	case first && luck < 11: // the sender then leaves it alone for a second
		r.busy++
		out.Header().Set("Retry-After", "1")
		http.Error(out, "slowly", http.StatusTooManyRequests)
	case first && luck < 40:
		r.acted[key]++
		r.cut++
		panic(http.ErrAbortHandler) // the connection breaks
	default:
		r.acted[key]++
		out.WriteHeader(http.StatusNoContent)
	}
}

func (r *Receiver) signed(req *http.Request, body []byte) bool {
	seconds, err := strconv.ParseInt(req.Header.Get(webhook.HeaderTimestamp), 10, 64)
	if err != nil {
		return false
	}
	expected := webhook.Sign([]byte(r.secret), req.Header.Get(webhook.HeaderID), time.Unix(seconds, 0), body)
	return hmac.Equal([]byte(expected), []byte(req.Header.Get(webhook.HeaderSignature)))
}

func (r *Receiver) answer(out http.ResponseWriter, req *http.Request) {
	if !r.signed(req, nil) {
		http.Error(out, "the signature is wrong", http.StatusUnauthorized)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.acted[req.PathValue("key")] == 0 {
		http.NotFound(out, req)
	}
}
