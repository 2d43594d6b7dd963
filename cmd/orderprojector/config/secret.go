package config

import "log/slog"

const redacted = "[redacted]"

// Secret is a value that no print, log or encoding shows. Only Reveal does.
type Secret struct{ value string }

// NewSecret wraps a value.
func NewSecret(value string) Secret { return Secret{value} }

// Reveal returns the value itself.
func (s Secret) Reveal() string { return s.value }

// IsZero reports whether there is no value.
func (s Secret) IsZero() bool { return s.value == "" }

func (s Secret) String() string {
	if s.value == "" {
		return ""
	}
	return redacted
}

// GoString covers %#v, which would otherwise print the field.
func (s Secret) GoString() string { return s.String() }

// MarshalText covers JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalJSON covers encoders that do not look for MarshalText.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + s.String() + `"`), nil }

// LogValue covers slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Set and Type make it a flag value.
func (s *Secret) Set(value string) error {
	s.value = value
	return nil
}

// Type is the flag's type in help.
func (s *Secret) Type() string { return "secret" }
