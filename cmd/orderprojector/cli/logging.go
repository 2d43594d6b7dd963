package cli

import (
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
)

// logger writes to standard error: JSON, plain text, or text with colour for a
// person at a terminal.
func (env *Env) logger(log config.Log) *slog.Logger {
	return slog.New(env.logHandler(log)(env.Stderr))
}

// serverLogger is logger for a program that must not stand still with its standard error: from here on, a queue
// is in front of it. A reader that goes away does not end the program either.
func (env *Env) serverLogger(log config.Log) *slog.Logger {
	signal.Ignore(syscall.SIGPIPE)
	if _, isFile := env.Stderr.(*os.File); !isFile {
		return env.logger(log) // only a file, such as a pipe or a terminal, makes its writer wait
	}
	out, handler := env.Stderr, env.logHandler(log)
	queue := newLogQueue(out, logQueueBytes, func(lines int) {
		slog.New(handler(out)).Warn("log lines were dropped: standard error is not read fast enough", "lines", lines)
	})
	env.Stderr, env.flush = queue, func() { queue.flush(logFlushLimit) }
	return slog.New(handler(queue))
}

// logHandler makes handlers in the format that standard error asks for.
func (env *Env) logHandler(log config.Log) func(io.Writer) slog.Handler {
	options := &slog.HandlerOptions{Level: log.Level}
	switch {
	case log.Format == "json":
		return func(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, options) }
	case isTerminal(env.Stderr):
		coloured := &tint.Options{Level: log.Level, TimeFormat: time.TimeOnly, NoColor: !env.colour()}
		return func(w io.Writer) slog.Handler { return tint.NewTextHandler(w, coloured) }
	}
	return func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, options) }
}

// colour follows https://no-color.org: any non-empty value turns colour off.
func (env *Env) colour() bool {
	if v, _ := env.LookupEnv("NO_COLOR"); v != "" {
		return false
	}
	v, _ := env.LookupEnv("TERM")
	return v != "dumb"
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
