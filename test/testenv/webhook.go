//go:build unix

package testenv

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// WebhookReply is how a webhook receiver behaves towards one delivery.
type WebhookReply int

// The replies.
const (
	ReplyOK         WebhookReply = iota // acts, and says so
	ReplyCut                            // acts, and cuts the connection before it says so
	ReplyHang                           // acts, and says nothing until the caller gives up
	ReplyActLate                        // says nothing until the caller gives up, and then acts
	ReplyDrop                           // cuts the connection and does not act
	ReplyBusy                           // 429 with Retry-After, does not act
	ReplyError                          // 500, does not act
	ReplyBadRequest                     // 400, does not act
)

// WebhookDelivery is one request that a receiver got.
type WebhookDelivery struct {
	Key    string
	Body   string
	Header http.Header
	Reply  WebhookReply
	At     time.Time
}

// WebhookReceiver is a receiver of notifications that acts on every delivery anew: it is not idempotent, so that what
// is sent twice is done twice. It remembers what it got, and says by key whether it has acted. It is safe for concurrent use.
type WebhookReceiver struct {
	t      testing.TB
	server *httptest.Server
	secret []byte

	mu         sync.Mutex
	reply      func(d WebhookDelivery, attempt int) WebhookReply
	retryAfter string
	deaf       bool // questions are not answered
	deliveries []WebhookDelivery
	attempts   map[string]int
	working    map[string]int // deliveries under way
	acted      map[string]int // how often it has acted
	questions  map[string]int
	changed    chan struct{} // closed and replaced with every delivery
}

// StartWebhook starts a receiver that replies as reply says: it is called for each delivery, with the number of deliveries of its
// key so far, this one included; nil is always ReplyOK. Whatever is not signed with the secret fails the test.
func StartWebhook(t testing.TB, secret string, reply func(d WebhookDelivery, attempt int) WebhookReply) *WebhookReceiver {
	t.Helper()
	w := &WebhookReceiver{
		t: t, secret: []byte(secret), reply: reply, retryAfter: "1",
		attempts: map[string]int{}, working: map[string]int{}, acted: map[string]int{}, questions: map[string]int{}, changed: make(chan struct{}),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /notify", w.deliver)
	mux.HandleFunc("GET /notify/{key}", w.status)
	w.server = httptest.NewServer(mux)
	t.Cleanup(func() {
		w.server.CloseClientConnections()
		w.server.Close()
	})
	return w
}

// URL takes notifications.
func (w *WebhookReceiver) URL() string { return w.server.URL + "/notify" }

// StatusURL says whether the receiver has acted on a key.
func (w *WebhookReceiver) StatusURL() string { return w.server.URL + "/notify/{key}" }

// Behave changes how the receiver replies.
func (w *WebhookReceiver) Behave(reply func(d WebhookDelivery, attempt int) WebhookReply) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reply = reply
}

// Deafen makes the receiver not answer questions, or answer them again.
func (w *WebhookReceiver) Deafen(deaf bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deaf = deaf
}

func (w *WebhookReceiver) deliver(out http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	d := WebhookDelivery{Key: r.Header.Get("Idempotency-Key"), Body: string(body), Header: r.Header.Clone(), At: time.Now()}
	w.verify(r, body)
	w.mu.Lock()
	w.attempts[d.Key]++
	if w.reply != nil {
		d.Reply = w.reply(d, w.attempts[d.Key])
	}
	w.deliveries = append(w.deliveries, d)
	// The key is noted before anything is done, as a receiver that can be asked has to.
	w.working[d.Key]++
	if d.Reply == ReplyOK || d.Reply == ReplyCut || d.Reply == ReplyHang {
		w.acted[d.Key]++
	}
	retryAfter := w.retryAfter
	w.note()
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if d.Reply == ReplyActLate {
			w.acted[d.Key]++
		}
		w.working[d.Key]--
		w.note()
	}()
	switch d.Reply {
	case ReplyOK:
		out.WriteHeader(http.StatusNoContent)
	case ReplyCut, ReplyDrop:
		panic(http.ErrAbortHandler)
	case ReplyHang, ReplyActLate:
		<-r.Context().Done()
	case ReplyBusy:
		out.Header().Set("Retry-After", retryAfter)
		out.WriteHeader(http.StatusTooManyRequests)
	case ReplyError:
		out.WriteHeader(http.StatusInternalServerError)
	case ReplyBadRequest:
		http.Error(out, "no such customer", http.StatusBadRequest)
	}
}

// note tells those who wait. It is called with the lock held.
func (w *WebhookReceiver) note() {
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *WebhookReceiver) status(out http.ResponseWriter, r *http.Request) {
	w.verify(r, nil)
	key := r.PathValue("key")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.questions[key]++
	switch {
	case w.deaf:
		out.WriteHeader(http.StatusServiceUnavailable)
	case w.acted[key] > 0:
		out.WriteHeader(http.StatusOK)
	case w.working[key] > 0:
		out.WriteHeader(http.StatusAccepted)
	default:
		out.WriteHeader(http.StatusNotFound)
	}
}

// verify checks the signature as a receiver does.
func (w *WebhookReceiver) verify(r *http.Request, body []byte) {
	mac := hmac.New(sha256.New, w.secret)
	fmt.Fprintf(mac, "%s.%s.", r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"))
	_, _ = io.Copy(mac, bytes.NewReader(body)) // a hash takes everything
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	if got := r.Header.Get("webhook-signature"); got != want || r.Header.Get("webhook-id") != r.Header.Get("Idempotency-Key") {
		w.t.Errorf("%s %s: signature %q of key %q, want %q", r.Method, r.URL.Path, got, r.Header.Get("Idempotency-Key"), want)
	}
}

// Acted returns how often the receiver has acted, by key.
func (w *WebhookReceiver) Acted() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.acted)
}

// Questions returns how often the receiver was asked about a key.
func (w *WebhookReceiver) Questions(key string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.questions[key]
}

// Deliveries returns the requests of a key, or all with "", in their order.
func (w *WebhookReceiver) Deliveries(key string) []WebhookDelivery {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []WebhookDelivery
	for _, d := range w.deliveries {
		if key == "" || d.Key == key {
			all = append(all, d)
		}
	}
	return all
}

// Await waits until a condition holds that deliveries can make true, and fails the test after timeout.
func (w *WebhookReceiver) Await(timeout time.Duration, is func() bool) {
	w.t.Helper()
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	for {
		w.mu.Lock()
		changed := w.changed
		w.mu.Unlock()
		if is() {
			return
		}
		select {
		case <-changed:
		case <-deadline.C:
			var keys []string
			for _, d := range w.Deliveries("") {
				keys = append(keys, fmt.Sprintf("%s (%d)", d.Key, d.Reply))
			}
			w.t.Fatalf("the webhook did not get what the test waits for; it got %s", strings.Join(keys, ", "))
		}
	}
}
