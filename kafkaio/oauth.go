package kafkaio

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

// OAuthConfig says where OAUTHBEARER tokens come from: exactly one of Token,
// TokenFile and TokenURL is set.
type OAuthConfig struct {
	// Token is used as it is.
	Token Secret
	// TokenFile is read again for every authentication.
	TokenFile string
	// TokenURL is asked with the client-credentials grant (RFC 6749, 4.4).
	// Tokens are kept until shortly before they expire.
	TokenURL     string
	ClientID     string
	ClientSecret Secret
	Scope        string
}

func (c OAuthConfig) validate() error {
	set := 0
	for _, s := range []string{c.Token.Reveal(), c.TokenFile, c.TokenURL} {
		if s != "" {
			set++
		}
	}
	if set != 1 {
		return errors.New("set exactly one of token, token file and token URL")
	}
	if c.TokenURL == "" {
		return nil
	}
	u, err := url.Parse(c.TokenURL)
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return fmt.Errorf("token URL %q is not an http(s) URL", c.TokenURL)
	}
	if c.ClientID == "" || c.ClientSecret == "" {
		return errors.New("a token URL needs a client ID and a client secret")
	}
	return nil
}

type tokenSource interface {
	token(ctx context.Context) (string, error)
}

func (c OAuthConfig) source(logger *slog.Logger) tokenSource {
	switch {
	case c.TokenFile != "":
		return tokenFile(c.TokenFile)
	case c.TokenURL != "":
		if strings.HasPrefix(c.TokenURL, "http:") {
			logger.Warn("the OAuth client secret is sent over an unencrypted connection", "hint", "use an https token URL")
		}
		return &tokenEndpoint{config: c, client: &http.Client{Timeout: tokenTimeout}}
	default:
		return staticToken(c.Token)
	}
}

type staticToken Secret

func (t staticToken) token(context.Context) (string, error) { return string(t), nil }

type tokenFile string

func (f tokenFile) token(context.Context) (string, error) {
	b, err := os.ReadFile(string(f))
	if err != nil {
		return "", err
	}
	if t := strings.TrimSpace(string(b)); t != "" {
		return t, nil
	}
	return "", fmt.Errorf("%s is empty", string(f))
}

// tokenEndpoint keeps its token until shortly before it expires: every broker
// connection authenticates, and the endpoint need not see each of them.
type tokenEndpoint struct {
	config OAuthConfig
	client *http.Client

	mu      sync.Mutex
	current string
	renewAt time.Time
}

func (e *tokenEndpoint) token(ctx context.Context) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current != "" && time.Now().Before(e.renewAt) {
		return e.current, nil
	}
	token, lifetime, err := e.request(ctx)
	if err != nil {
		return "", err
	}
	e.current, e.renewAt = token, time.Now().Add(lifetime*4/5)
	return token, nil
}

func (e *tokenEndpoint) request(ctx context.Context) (string, time.Duration, error) {
	form := url.Values{"grant_type": {"client_credentials"}}
	if e.config.Scope != "" {
		form.Set("scope", e.config.Scope)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.config.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return "", 0, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	req.SetBasicAuth(url.QueryEscape(e.config.ClientID), url.QueryEscape(e.config.ClientSecret.Reveal()))
	resp, err := e.client.Do(req)
	if err != nil {
		return "", 0, fmt.Errorf("asking the token endpoint: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return "", 0, fmt.Errorf("reading the token endpoint's answer: %w", err)
	}
	var answer struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"`
		Error       string `json:"error"`
	}
	// The body itself stays out of errors: it may hold a token.
	jsonErr := json.Unmarshal(body, &answer)
	if resp.StatusCode != http.StatusOK {
		return "", 0, fmt.Errorf("the token endpoint answered %s %s", resp.Status, answer.Error)
	}
	if jsonErr != nil || answer.AccessToken == "" {
		return "", 0, errors.New("the token endpoint's answer holds no access_token")
	}
	lifetime := time.Duration(answer.ExpiresIn) * time.Second
	if lifetime <= 0 {
		lifetime = time.Minute
	}
	return answer.AccessToken, lifetime, nil
}
