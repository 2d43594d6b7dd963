package httpapi

import (
	"context"
	"net/http"
	"time"
)

// checkTimeout bounds a readiness check, so that a probe gets its answer
// before the prober gives up.
const checkTimeout = 2 * time.Second

// Check is one condition of readiness.
type Check struct {
	Name string
	// Run returns nil when the condition holds. It is called concurrently and
	// ends with its context.
	Run func(ctx context.Context) error
}

// CheckResult is what a check said.
type CheckResult struct {
	Name   string `json:"name"`
	Status string `json:"status"` // ok or failed
	Detail string `json:"detail,omitempty"`
}

type healthBody struct {
	Status string        `json:"status"`
	Checks []CheckResult `json:"checks,omitempty"`
}

// live answers as long as the process can: neither Kafka nor the database
// matters, because a restart heals neither.
func live(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, "application/json", healthBody{Status: "ok"})
}

// ready answers whether reads can be served. ?verbose shows each check.
func ready(checks []Check) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
		defer cancel()
		results, firstFailed := runChecks(ctx, checks)
		if !r.URL.Query().Has("verbose") {
			results = nil
		}
		if firstFailed != "" {
			p := newProblem(http.StatusServiceUnavailable, "not ready: "+firstFailed)
			p.Checks = results
			writeProblem(w, p)
			return
		}
		writeJSON(w, http.StatusOK, "application/json", healthBody{Status: "ok", Checks: results})
	}
}

// runChecks runs the checks in order and stops at none: a verbose answer shows them all.
func runChecks(ctx context.Context, checks []Check) (results []CheckResult, firstFailed string) {
	for _, c := range checks {
		result := CheckResult{Name: c.Name, Status: "ok"}
		if err := c.Run(ctx); err != nil {
			result.Status, result.Detail = "failed", err.Error()
			if firstFailed == "" {
				firstFailed = c.Name
			}
		}
		results = append(results, result)
	}
	return results, firstFailed
}

// consumption answers whether the consumer moves. It is not meant for a
// liveness probe: it fails for as long as an outage holds the consumer up.
func consumption(healthy func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := healthy(); err != nil {
			writeProblem(w, newProblem(http.StatusServiceUnavailable, err.Error()))
			return
		}
		writeJSON(w, http.StatusOK, "application/json", healthBody{Status: "ok"})
	}
}
