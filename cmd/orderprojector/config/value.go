package config

import (
	"fmt"
	"log/slog"
	"strconv"
	"time"
)

// The flag values of the plain types. Each reads what it prints, so that one
// path parses flags, environment and file alike.

type text string

func (v *text) Set(s string) error { *v = text(s); return nil }
func (v *text) String() string     { return string(*v) }
func (v *text) Type() string       { return "string" }

type integer int

func (v *integer) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil {
		return fmt.Errorf("%q is not a whole number", s)
	}
	*v = integer(n)
	return nil
}
func (v *integer) String() string { return strconv.Itoa(int(*v)) }
func (v *integer) Type() string   { return "int" }

type boolean bool

func (v *boolean) Set(s string) error {
	b, err := strconv.ParseBool(s)
	if err != nil {
		return fmt.Errorf("%q is neither true nor false", s)
	}
	*v = boolean(b)
	return nil
}
func (v *boolean) String() string { return strconv.FormatBool(bool(*v)) }
func (v *boolean) Type() string   { return "bool" }

type duration time.Duration

func (v *duration) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%q is not a duration (such as 500ms, 10s or 2m)", s)
	}
	*v = duration(d)
	return nil
}
func (v *duration) String() string { return time.Duration(*v).String() }
func (v *duration) Type() string   { return "duration" }

type level slog.Level

func (v *level) Set(s string) error {
	var l slog.Level
	if err := l.UnmarshalText([]byte(s)); err != nil {
		return fmt.Errorf("%q is not debug, info, warn or error", s)
	}
	*v = level(l)
	return nil
}
func (v *level) String() string { return levelName(slog.Level(*v)) }
func (v *level) Type() string   { return "level" }

func levelName(l slog.Level) string {
	switch l {
	case slog.LevelDebug:
		return "debug"
	case slog.LevelInfo:
		return "info"
	case slog.LevelWarn:
		return "warn"
	case slog.LevelError:
		return "error"
	}
	return l.String()
}
