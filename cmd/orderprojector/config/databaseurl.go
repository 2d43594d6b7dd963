package config

import (
	"log/slog"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// DatabaseURL is a PostgreSQL connection string, as URL or as key=value list,
// that shows itself without its passwords. Only Reveal shows it whole.
type DatabaseURL struct{ value string }

// NewDatabaseURL wraps a connection string.
func NewDatabaseURL(value string) DatabaseURL { return DatabaseURL{value} }

// Reveal returns the connection string with its password.
func (u DatabaseURL) Reveal() string { return u.value }

// IsZero reports whether there is none.
func (u DatabaseURL) IsZero() bool { return u.value == "" }

var secretKeyword = regexp.MustCompile(`(?is)((?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*(?:'|$)|(?:\\.|[^\s\\])*)`)

// String shows the connection string with "xxxxx" in place of each password.
// What cannot be understood is not shown at all.
func (u DatabaseURL) String() string {
	if u.value == "" {
		return ""
	}
	if !strings.HasPrefix(u.value, "postgres://") && !strings.HasPrefix(u.value, "postgresql://") {
		if strings.Contains(u.value, "://") || !strings.Contains(u.value, "=") {
			return redacted
		}
		return secretKeyword.ReplaceAllString(u.value, "${1}xxxxx")
	}
	parsed, err := url.Parse(u.value)
	if err != nil {
		return redacted
	}
	query, err := url.ParseQuery(parsed.RawQuery)
	if err != nil {
		return redacted
	}
	for key := range query {
		if strings.Contains(strings.ToLower(key), "password") {
			query.Set(key, "xxxxx")
		}
	}
	parsed.RawQuery = query.Encode()
	return parsed.Redacted()
}

// GoString covers %#v, which would otherwise print the field.
func (u DatabaseURL) GoString() string { return strconv.Quote(u.String()) }

// MarshalText covers JSON and YAML.
func (u DatabaseURL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// LogValue covers slog.
func (u DatabaseURL) LogValue() slog.Value { return slog.StringValue(u.String()) }

// Set and Type make it a flag value.
func (u *DatabaseURL) Set(value string) error {
	u.value = value
	return nil
}

// Type is the flag's type in help.
func (u *DatabaseURL) Type() string { return "url" }
