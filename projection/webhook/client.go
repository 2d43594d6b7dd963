// Package webhook calls a receiver of notifications over HTTP: signed, with an idempotency key, a deadline and no
// redirects.
//
// A message is a POST of its JSON with the headers of Standard Webhooks (webhook-id, webhook-timestamp and
// webhook-signature, an HMAC-SHA256 over "id.timestamp.body") and Idempotency-Key. Any 2xx status means that the receiver has acted.
//
// A question is a GET with the key in the URL, signed the same way over an empty body. 200 means that the receiver has
// acted, 404 that it has not, 202 that it is about to. So a receiver notes the key before it acts.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/orderprojector/orderprojector/projection/notifications"
)

// The headers, as Standard Webhooks names them.
const (
	HeaderID             = "webhook-id"
	HeaderTimestamp      = "webhook-timestamp"
	HeaderSignature      = "webhook-signature"
	HeaderIdempotencyKey = "Idempotency-Key"
)

const (
	// maxAnswer is how much of an answer is read, so that the connection can be used again.
	maxAnswer = 64 << 10
	// maxQuoted is how much of it is quoted in an error.
	maxQuoted = 200
	keyInURL  = "{key}"
)

// Config says how to reach the receiver.
type Config struct {
	URL       string // required
	StatusURL string // with {key} in it; "" where the receiver cannot be asked
	// Secret signs: base64 behind "whsec_", or the bytes themselves. Required.
	Secret    string
	Timeout   time.Duration     // of one call, from connecting to the end of the answer; required
	Transport http.RoundTripper // nil for one of its own
	Now       func() time.Time  // nil for time.Now
}

// Client calls the receiver. It is safe for concurrent use.
type Client struct {
	cfg    Config
	secret []byte
	http   *http.Client
}

var _ notifications.Receiver = (*Client)(nil)

// NewClient returns a client, or an error that names the field that is wrong. It does not connect.
func NewClient(cfg Config) (*Client, error) {
	secret, err := parseSecret(cfg.Secret)
	if err != nil {
		return nil, err
	}
	if _, err := url.Parse(cfg.URL); err != nil || cfg.URL == "" {
		return nil, errors.New("webhook: URL is missing or not a URL")
	}
	if cfg.StatusURL != "" && strings.Count(cfg.StatusURL, keyInURL) != 1 {
		return nil, errors.New("webhook: StatusURL does not contain " + keyInURL + " once")
	}
	if cfg.Timeout <= 0 {
		return nil, errors.New("webhook: Timeout must be positive")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Transport == nil {
		cfg.Transport = newTransport(cfg.Timeout)
	}
	return &Client{cfg: cfg, secret: secret, http: &http.Client{
		Transport: cfg.Transport,
		// A redirect would take the message and its signature to somebody else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func newTransport(timeout time.Duration) *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: timeout, KeepAlive: 15 * time.Second}).DialContext,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    timeout,
		ResponseHeaderTimeout:  timeout,
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        30 * time.Second,
	}
}

func parseSecret(text string) ([]byte, error) {
	encoded, isEncoded := strings.CutPrefix(text, "whsec_")
	if !isEncoded {
		if text == "" {
			return nil, errors.New("webhook: Secret is missing")
		}
		return []byte(text), nil
	}
	secret, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(secret) == 0 {
		return nil, errors.New("webhook: what is behind whsec_ in the secret is not base64")
	}
	return secret, nil
}

// Sign returns the signature of a message, as the header has it.
func Sign(secret []byte, id string, at time.Time, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%d.", id, at.Unix())
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// Timeout implements notifications.Receiver.
func (c *Client) Timeout() time.Duration { return c.cfg.Timeout }

// Askable implements notifications.Receiver.
func (c *Client) Askable() bool { return c.cfg.StatusURL != "" }

// Deliver implements notifications.Receiver.
func (c *Client) Deliver(ctx context.Context, m notifications.Message) notifications.Answer {
	a := c.call(ctx, http.MethodPost, c.cfg.URL, m.Key, []byte(m.Body))
	a.Verdict = delivered(a)
	return a
}

// Ask implements notifications.Receiver.
func (c *Client) Ask(ctx context.Context, key string) notifications.Answer {
	a := c.call(ctx, http.MethodGet, strings.ReplaceAll(c.cfg.StatusURL, keyInURL, url.PathEscape(key)), key, nil)
	a.Verdict = asked(a)
	return a
}

// delivered says what an answer to a message means. Whatever may have reached a receiver that did not say so is unsure.
func delivered(a notifications.Answer) notifications.Verdict {
	switch s := a.Status; {
	case s >= 200 && s < 300:
		return notifications.Acted
	case s == 0:
		if errors.Is(a.Err, errUnsent) {
			return notifications.NotNow
		}
		return notifications.Unsure
	case s == http.StatusConflict, s == http.StatusBadGateway, s == http.StatusGatewayTimeout:
		// The same key is being worked on, or somebody in between does not know.
		return notifications.Unsure
	case s >= 500, s < 400,
		// The endpoint or the credentials are wrong, or it is too early: nothing about this message.
		s == http.StatusUnauthorized, s == http.StatusForbidden, s == http.StatusNotFound, s == http.StatusMethodNotAllowed,
		s == http.StatusProxyAuthRequired, s == http.StatusRequestTimeout, s == http.StatusGone, s == http.StatusTooEarly, s == http.StatusTooManyRequests:
		return notifications.NotNow
	}
	return notifications.Refused
}

// asked says what an answer to a question means.
func asked(a notifications.Answer) notifications.Verdict {
	switch a.Status {
	case http.StatusOK, http.StatusNoContent:
		return notifications.Acted
	case http.StatusNotFound:
		return notifications.NotActed
	}
	return notifications.Unsure
}

// errUnsent marks calls that did not reach the receiver.
var errUnsent = errors.New("the receiver was not reached")

// call makes one signed request. The error of its answer is nil for a status of 2xx.
func (c *Client) call(ctx context.Context, method, to, key string, body []byte) (a notifications.Answer) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, to, http.NoBody)
	if err != nil {
		a.Err = fmt.Errorf("%w: %w", errUnsent, withoutURL(err))
		return a
	}
	if method == http.MethodPost {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		// A request with Idempotency-Key and a body that can be had again is sent once more by net/http itself when a
		// connection that was used before breaks, as when the receiver cuts it after acting. Here, it is asked about instead.
		req.GetBody = nil
		req.Header.Set("Content-Type", "application/json")
	}
	now := c.cfg.Now()
	req.Header.Set("User-Agent", "orderprojector")
	req.Header.Set(HeaderIdempotencyKey, key)
	req.Header.Set(HeaderID, key)
	req.Header.Set(HeaderTimestamp, strconv.FormatInt(now.Unix(), 10))
	req.Header.Set(HeaderSignature, Sign(c.secret, key, now, body))
	resp, err := c.http.Do(req)
	if err != nil {
		a.Err = withoutURL(err)
		if unsent(err) {
			a.Err = fmt.Errorf("%w: %w", errUnsent, a.Err)
		}
		return a
	}
	defer func() { _ = resp.Body.Close() }()
	a.Status = resp.StatusCode
	a.After = retryAfter(resp.Header.Get("Retry-After"), now)
	// The status is the answer; what follows is for people, and may be cut.
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if a.Status < 200 || a.Status >= 300 {
		a.Err = fmt.Errorf("%s%s", resp.Status, quote(text))
	}
	return a
}

// unsent reports errors that come before anything of the request was written.
func unsent(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &dns)
}

// withoutURL drops the URL from an error of net/http: its path may be all that protects the receiver.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

func quote(answer []byte) string {
	text := strings.TrimSpace(string(answer))
	if text == "" || !utf8.ValidString(text) {
		return ""
	}
	if len(text) > maxQuoted {
		text = strings.ToValidUTF8(text[:maxQuoted], "") + "…"
	}
	return ": " + strconv.Quote(text)
}

// retryAfter reads the header, as seconds or as a date; 0 for none.
func retryAfter(value string, now time.Time) time.Duration {
	if value == "" {
		return 0
	}
	if seconds, err := strconv.ParseInt(value, 10, 32); err == nil {
		return max(0, time.Duration(seconds)*time.Second)
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
