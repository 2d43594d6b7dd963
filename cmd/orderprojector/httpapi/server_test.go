package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/httpapi"
)

func config(change func(*httpapi.Config)) httpapi.Config {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "a_gauge"}))
	c := httpapi.Config{
		Logger: slog.New(slog.DiscardHandler), Gatherer: registry,
		Ready: []httpapi.Check{
			{Name: "database", Run: func(context.Context) error { return nil }},
			{Name: "schema", Run: func(context.Context) error { return nil }},
		},
		Consumption: func() error { return nil },
	}
	if change != nil {
		change(&c)
	}
	return c
}

func request(c httpapi.Config, method, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	httpapi.Handler(c).ServeHTTP(w, httptest.NewRequest(method, target, nil))
	return w
}

func expect(t *testing.T, w *httptest.ResponseRecorder, status int, contentType string, contains ...string) {
	t.Helper()
	body := w.Body.Bytes()
	if w.Code != status || !strings.HasPrefix(w.Header().Get("Content-Type"), contentType) {
		t.Errorf("got %d %s, want %d %s: %s", w.Code, w.Header().Get("Content-Type"), status, contentType, body)
	}
	for _, want := range contains {
		if !strings.Contains(string(body), want) {
			t.Errorf("body %s does not contain %s", body, want)
		}
	}
	if strings.HasSuffix(contentType, "json") && !json.Valid(body) {
		t.Errorf("not JSON: %s", body)
	}
}

func TestHealthyAnswers(t *testing.T) {
	t.Parallel()
	c := config(nil)
	expect(t, request(c, "GET", "/livez"), 200, "application/json", `"ok"`)
	expect(t, request(c, "GET", "/readyz"), 200, "application/json", `{"status":"ok"}`)
	expect(t, request(c, "GET", "/readyz?verbose"), 200, "application/json", `"database"`, `"schema"`)
	expect(t, request(c, "GET", "/healthz/consumption"), 200, "application/json", `"ok"`)
	expect(t, request(c, "GET", "/metrics"), 200, "text/plain", "a_gauge 0")
	expect(t, request(c, "HEAD", "/livez"), 200, "application/json")
}

func TestFailuresAreProblems(t *testing.T) {
	t.Parallel()
	c := config(func(c *httpapi.Config) {
		c.Ready[1].Run = func(context.Context) error { return errors.New("version 2, need 3") }
		c.Consumption = func() error { return errors.New("partition 3 is frozen") }
	})
	const problem = "application/problem+json"
	expect(t, request(c, "GET", "/livez"), 200, "application/json")
	expect(t, request(c, "GET", "/readyz"), 503, problem, `"status":503`, "not ready: schema")
	expect(t, request(c, "GET", "/readyz?verbose"), 503, problem, "version 2, need 3", `{"name":"database","status":"ok"}`)
	expect(t, request(c, "GET", "/healthz/consumption"), 503, problem, "partition 3 is frozen")
	expect(t, request(c, "GET", "/nothing"), 404, problem, "Not Found")
	wrongMethod := request(c, "POST", "/livez")
	expect(t, wrongMethod, 405, problem)
	if allow := wrongMethod.Header().Get("Allow"); !strings.Contains(allow, "GET") {
		t.Errorf("Allow is %q", allow)
	}
}

func TestReadinessDoesNotWaitForever(t *testing.T) {
	t.Parallel()
	c := config(func(c *httpapi.Config) {
		c.Ready[0].Run = func(ctx context.Context) error {
			if _, bounded := ctx.Deadline(); !bounded {
				return errors.New("no deadline")
			}
			return nil
		}
	})
	expect(t, request(c, "GET", "/readyz"), 200, "application/json")
}

func TestAPanicIsAnError(t *testing.T) {
	t.Parallel()
	c := config(func(c *httpapi.Config) { c.Consumption = func() error { panic("oops") } })
	expect(t, request(c, "GET", "/healthz/consumption"), 500, "application/problem+json")
}

func TestServeEndsWithShutdown(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := httpapi.New(config(nil))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	r, err := http.Get("http://" + listener.Addr().String() + "/livez")
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Errorf("status %d", r.StatusCode)
	}
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
