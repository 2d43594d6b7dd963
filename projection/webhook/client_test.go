package webhook_test

import (
	"context"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderprojector/orderprojector/projection/notifications"
	"github.com/orderprojector/orderprojector/projection/webhook"
)

const secret = "canary-secret"

func newClient(t *testing.T, cfg webhook.Config) *webhook.Client {
	t.Helper()
	cfg.Secret = secret
	if cfg.Timeout == 0 {
		cfg.Timeout = 10 * time.Second
	}
	c, err := webhook.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWhatAnswersMean(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		w.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
		w.Header().Set("Retry-After", r.URL.Query().Get("after"))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "why")
	}))
	defer server.Close()
	for status, want := range map[int][2]notifications.Verdict{
		200: {notifications.Acted, notifications.Acted}, 201: {notifications.Acted, notifications.Unsure}, 202: {notifications.Acted, notifications.Unsure},
		204: {notifications.Acted, notifications.Acted}, 301: {notifications.NotNow, notifications.Unsure}, 307: {notifications.NotNow, notifications.Unsure},
		400: {notifications.Refused, notifications.Unsure}, 401: {notifications.NotNow, notifications.Unsure}, 403: {notifications.NotNow, notifications.Unsure},
		404: {notifications.NotNow, notifications.NotActed}, 408: {notifications.NotNow, notifications.Unsure}, 409: {notifications.Unsure, notifications.Unsure},
		413: {notifications.Refused, notifications.Unsure}, 422: {notifications.Refused, notifications.Unsure}, 429: {notifications.NotNow, notifications.Unsure},
		500: {notifications.NotNow, notifications.Unsure}, 502: {notifications.Unsure, notifications.Unsure}, 503: {notifications.NotNow, notifications.Unsure},
		504: {notifications.Unsure, notifications.Unsure},
	} {
		at := server.URL + "/?after=7&status=" + strconv.Itoa(status)
		c := newClient(t, webhook.Config{URL: at, StatusURL: at + "&key={key}"})
		for i, a := range []notifications.Answer{c.Deliver(t.Context(), notifications.Message{Key: "k", Body: "{}"}), c.Ask(t.Context(), "k")} {
			if a.Verdict != want[i] || a.Status != status || a.After != 7*time.Second {
				t.Errorf("%d: %+v, want %s", status, a, want[i])
			}
			if (a.Err == nil) != (status < 300) {
				t.Errorf("%d: error %v", status, a.Err)
			}
		}
	}
}

func TestRetryAfterAsDate(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", now.Add(90*time.Second).Format(http.TimeFormat))
		w.WriteHeader(429)
	}))
	defer server.Close()
	c := newClient(t, webhook.Config{URL: server.URL, Now: func() time.Time { return now }})
	if a := c.Deliver(t.Context(), notifications.Message{Key: "k"}); a.After != 90*time.Second {
		t.Errorf("%+v", a)
	}
}

// The signature is that of Standard Webhooks: their published example.
func TestSignature(t *testing.T) {
	t.Parallel()
	key, err := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	got := webhook.Sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, bad := range []string{"", "whsec_", "whsec_%%%"} {
		if _, err := webhook.NewClient(webhook.Config{URL: "http://r", Secret: bad, Timeout: time.Second}); err == nil {
			t.Errorf("secret %q is taken", bad)
		}
	}
}

// A receiver that cuts the connection after it has acted gets nothing twice: neither from us nor from net/http, which
// repeats requests on connections that were used before.
func TestCutConnectionIsNotRepeated(t *testing.T) {
	t.Parallel()
	var acted atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if acted.Add(1) > 1 {
			panic(http.ErrAbortHandler)
		}
	}))
	defer server.Close()
	c := newClient(t, webhook.Config{URL: server.URL})
	if a := c.Deliver(t.Context(), notifications.Message{Key: "a", Body: "{}"}); a.Verdict != notifications.Acted {
		t.Fatalf("%+v", a)
	}
	a := c.Deliver(t.Context(), notifications.Message{Key: "b", Body: "{}"})
	if a.Verdict != notifications.Unsure || acted.Load() != 2 {
		t.Errorf("%+v, and the receiver acted %d times", a, acted.Load())
	}
}

func TestDeadlineAndUnreachable(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	c := newClient(t, webhook.Config{URL: server.URL + "/path-secret", Timeout: 50 * time.Millisecond})
	a := c.Deliver(context.Background(), notifications.Message{Key: "a", Body: "{}"})
	if a.Verdict != notifications.Unsure || strings.Contains(a.Err.Error(), "path-secret") {
		t.Errorf("%+v", a)
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + listener.Addr().String()
	_ = listener.Close()
	c = newClient(t, webhook.Config{URL: nobody})
	if a := c.Deliver(t.Context(), notifications.Message{Key: "a", Body: "{}"}); a.Verdict != notifications.NotNow || strings.Contains(a.Err.Error(), secret) {
		t.Errorf("nobody listens: %+v", a)
	}
}

// An answer without end is read no further than needed.
func TestEndlessAnswer(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(400)
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat("x", 8<<10)); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	c := newClient(t, webhook.Config{URL: server.URL})
	if a := c.Deliver(t.Context(), notifications.Message{Key: "a", Body: "{}"}); a.Verdict != notifications.Refused || len(a.Err.Error()) > 1000 {
		t.Errorf("%s, an error of %d bytes", a.Verdict, len(a.Err.Error()))
	}
}
