package config

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// FileFlag and FileEnv name the YAML file to load.
const (
	FileFlag = "config"
	FileEnv  = "ORDERPROJECTOR_CONFIG"
)

// Sources is where Load looks.
type Sources struct {
	Flags     *pflag.FlagSet                    // parsed; nil for none
	LookupEnv func(name string) (string, bool)  // nil for none
	ReadFile  func(path string) ([]byte, error) // nil for os.ReadFile
}

// Origin says where a value came from: "default", "flag --x",
// "environment X" or "file PATH".
type Origin string

// OriginDefault is the origin of what nobody set.
const OriginDefault Origin = "default"

// A layer is one source of values, asked by setting.
type layer struct {
	get    func(s setting, name, env string) (string, bool)
	origin func(name, env string) Origin
}

// Load reads file, environment and flags over the defaults, later ones
// winning. An environment variable that is empty counts as unset. Every
// problem found is an *Error; they come joined. Load does not validate.
func Load(src Sources) (Config, error) {
	if src.LookupEnv == nil {
		src.LookupEnv = func(string) (string, bool) { return "", false }
	}
	if src.ReadFile == nil {
		src.ReadFile = os.ReadFile
	}
	c := Default()
	c.origins = map[string]Origin{}
	for _, name := range []string{"PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE"} {
		if v, _ := src.LookupEnv(name); v != "" {
			c.Database.fromPGEnv = true
		}
	}
	file, err := fileLayer(src, c.settings())
	if err != nil {
		return c, err
	}
	var problems []error
	for _, l := range []layer{file, envLayer(src), flagLayer(src)} {
		for _, s := range c.settings() {
			if err := c.apply(l, s, src.ReadFile); err != nil {
				problems = append(problems, err)
			}
		}
	}
	return c, errors.Join(problems...)
}

// apply takes a setting's value from one layer, directly or from the file
// that its NAME-file variant names.
func (c *Config) apply(l layer, s setting, readFile func(string) ([]byte, error)) error {
	value, direct := l.get(s, s.name, s.env)
	origin := l.origin(s.name, s.env)
	if s.fileVariant {
		name, env := s.name+fileSuffix, s.env+"_FILE"
		if path, ok := l.get(s, name, env); ok {
			if direct {
				return &Error{Name: s.name, Origin: l.origin(name, env), Problem: "is given directly and as a file too"}
			}
			content, err := readFile(path)
			if err != nil {
				return &Error{Name: name, Value: path, Origin: l.origin(name, env), Problem: "cannot be read", Err: err}
			}
			value, direct, origin = strings.TrimRight(string(content), "\r\n"), true, l.origin(name, env)
		}
	}
	if !direct {
		return nil
	}
	if err := s.value.Set(value); err != nil {
		return &Error{Name: s.name, Origin: origin, Problem: err.Error()}
	}
	c.origins[s.name] = origin
	return nil
}

func envLayer(src Sources) layer {
	return layer{
		get: func(_ setting, _, env string) (string, bool) {
			v, ok := src.LookupEnv(env)
			return v, ok && v != ""
		},
		origin: func(_, env string) Origin { return Origin("environment " + env) },
	}
}

func flagLayer(src Sources) layer {
	return layer{
		get: func(_ setting, name, _ string) (string, bool) {
			if src.Flags == nil {
				return "", false
			}
			flag := src.Flags.Lookup(name)
			if flag == nil || !flag.Changed {
				return "", false
			}
			if u, ok := flag.Value.(*DatabaseURL); ok { // String hides the password
				return u.Reveal(), true
			}
			return flag.Value.String(), true
		},
		origin: func(name, _ string) Origin { return Origin("flag --" + name) },
	}
}

// Origin says where the named setting's value came from.
func (c Config) Origin(name string) Origin {
	if o, ok := c.origins[name]; ok {
		return o
	}
	return OriginDefault
}

// Explicit reports whether somebody set the named setting.
func (c Config) Explicit(name string) bool { return c.Origin(name) != OriginDefault }

// Value is a setting as shown to people: secrets are redacted.
type Value struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin Origin `json:"origin"`
	Env    string `json:"env"`
}

// Values lists every setting.
func (c Config) Values() []Value {
	var values []Value
	for _, s := range c.settings() {
		values = append(values, Value{Name: s.name, Value: s.value.String(), Origin: c.Origin(s.name), Env: s.env})
	}
	return values
}

// Error is a problem with one setting.
type Error struct {
	Name    string // the setting
	Value   string // as shown to people, "" where it is empty or part of Problem
	Origin  Origin
	Problem string
	Err     error // cause, or nil
	Advice  string
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Name)
	if e.Value != "" {
		fmt.Fprintf(&b, " %q", e.Value)
	}
	b.WriteString(" " + e.Problem)
	if e.Origin != "" && e.Origin != OriginDefault {
		fmt.Fprintf(&b, " (from %s)", e.Origin)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// Hint says what the operator can do.
func (e *Error) Hint() string { return e.Advice }
