// Package httpapi serves health and metrics over HTTP. Errors are problem
// bodies (RFC 9457).
package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Config is what a Server serves.
type Config struct {
	Logger   *slog.Logger
	Gatherer prometheus.Gatherer
	// Ready holds the conditions of /readyz.
	Ready []Check
	// Consumption returns nil while the consumer moves, for /healthz/consumption.
	// It must not block.
	Consumption func() error
}

// Server is an HTTP server on a listener of the caller's.
type Server struct{ http *http.Server }

// New makes a server; Serve starts it.
func New(cfg Config) *Server {
	return &Server{http: &http.Server{
		Handler:           Handler(cfg),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second, // a client that does not read its answer holds one of few places
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelWarn),
	}}
}

// Serve answers requests until Shutdown, and then returns nil.
func (s *Server) Serve(listener net.Listener) error {
	if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving HTTP on %s: %w", listener.Addr(), err)
	}
	return nil
}

// Shutdown lets requests in flight end until ctx does, and then cuts them off.
func (s *Server) Shutdown(ctx context.Context) error {
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(err, s.http.Close())
	}
	return nil
}

// Handler returns the routes alone, for tests and for mounting elsewhere.
func Handler(cfg Config) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", live)
	mux.HandleFunc("GET /readyz", ready(cfg.Ready))
	mux.HandleFunc("GET /healthz/consumption", consumption(cfg.Consumption))
	mux.Handle("GET /metrics", promhttp.HandlerFor(cfg.Gatherer, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelError),
		ErrorHandling:       promhttp.ContinueOnError, // one broken collector hides no other
		MaxRequestsInFlight: 4,
	}))
	return recovered(cfg.Logger, routed(mux))
}

// routed answers requests that match no route with a problem body, too.
func routed(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		refusal := &statusRecorder{header: http.Header{}}
		handler.ServeHTTP(refusal, r)
		if allow := refusal.header.Get("Allow"); allow != "" {
			w.Header().Set("Allow", allow)
		}
		writeProblem(w, newProblem(refusal.status, ""))
	})
}

// statusRecorder keeps the status that the mux would have answered.
type statusRecorder struct {
	header http.Header
	status int
}

func (r *statusRecorder) Header() http.Header         { return r.header }
func (r *statusRecorder) Write(b []byte) (int, error) { return len(b), nil }
func (r *statusRecorder) WriteHeader(status int)      { r.status = status }

// recovered turns a panic into a logged 500.
func recovered(logger *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch v := recover(); v {
			case nil:
			case http.ErrAbortHandler:
				panic(v)
			default:
				logger.Error("HTTP handler panicked", "method", r.Method, "path", r.URL.Path, "panic", v)
				writeProblem(w, newProblem(http.StatusInternalServerError, ""))
			}
		}()
		next.ServeHTTP(w, r)
	})
}
