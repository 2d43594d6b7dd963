//go:build unix

package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded/child"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded/freeport"
)

// DatabaseName is the database that StartPostgres creates.
const DatabaseName = "orderprojector"

const (
	superuser    = "postgres"
	startTimeout = 60 * time.Second
	killTimeout  = 10 * time.Second
	// longest path of a Unix socket that every system accepts
	maxSocketPath = 100
)

// PostgresConfig says how to run a throwaway server. The zero value is good.
type PostgresConfig struct {
	// Dir holds the data (Dir/data) and the log (Dir/postgres.log). One that
	// holds data already, such as a copy made by Backup, is started as it
	// is. Empty means a new temporary directory that Stop removes.
	Dir string
	// Port on 127.0.0.1; 0 means a free one, which the server then keeps.
	Port int
	// Settings are server parameters, such as fsync=off. ALTER SYSTEM
	// overrides them.
	Settings map[string]string
	// Binaries is the directory of initdb and postgres, or "download" for
	// PostgreSQL 18 from the Maven registry whatever is installed. Empty
	// means $ORDERPROJECTOR_POSTGRES_BIN, else the newest installed server
	// (version 14 or later), else a download.
	Binaries string
	// Logger gets a few lines about starts and stops; nil means none.
	Logger *slog.Logger
}

// Postgres is a server of our own. It listens on 127.0.0.1 alone and trusts
// whoever connects. It ends with this process, however that ends (on Linux).
// The methods may be called from several goroutines.
type Postgres struct {
	config   PostgresConfig
	binaries binaries
	account  account
	dir      string
	owned    bool // the directory is ours to remove
	log      *slog.Logger

	mu     sync.Mutex // one start or stop at a time
	port   int
	server *child.Child // nil before the first start
}

// StartPostgres starts a server and creates the database "orderprojector",
// unless the directory has it. The error of a failed start ends with the last
// lines that the server wrote.
func StartPostgres(ctx context.Context, config PostgresConfig) (*Postgres, error) {
	log := config.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	bin, err := findBinaries(ctx, config.Binaries, log)
	if err != nil {
		return nil, err
	}
	account, err := serverAccount()
	if err != nil {
		return nil, err
	}
	p := &Postgres{config: config, binaries: bin, account: account, dir: config.Dir, log: log, port: config.Port}
	if p.dir == "" {
		if p.dir, err = os.MkdirTemp("", "orderprojector-postgres-"); err != nil {
			return nil, fmt.Errorf("creating a directory for PostgreSQL: %w", err)
		}
		p.owned = true
	}
	if err := p.begin(ctx); err != nil {
		err = fmt.Errorf("starting PostgreSQL %d (%s): %w", bin.major, bin.dir, err)
		// ctx may be over, which is no reason to leave a server behind.
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
		defer cancel()
		return nil, errors.Join(err, p.Stop(cleanup))
	}
	return p, nil
}

func (p *Postgres) begin(ctx context.Context) error {
	var err error
	if p.dir, err = filepath.Abs(p.dir); err != nil {
		return err
	}
	if err := p.account.makeDir(p.dir); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(p.data(), "PG_VERSION")); errors.Is(err, os.ErrNotExist) {
		if err := p.initialise(ctx); err != nil {
			return err
		}
	} else if err != nil {
		return fmt.Errorf("looking for existing data: %w", err)
	}
	if err := p.Start(ctx); err != nil {
		return err
	}
	return p.ensureDatabase(ctx, DatabaseName)
}

// Dir is the directory that holds the server's data and log.
func (p *Postgres) Dir() string { return p.dir }

// LogFile is the file that the server writes its log to.
func (p *Postgres) LogFile() string { return filepath.Join(p.dir, "postgres.log") }

// Version is the server's major version.
func (p *Postgres) Version() int { return p.binaries.major }

// Port is the port on 127.0.0.1. It stays the same over restarts.
func (p *Postgres) Port() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.port
}

// DSN is the connection string of the database "orderprojector".
func (p *Postgres) DSN() string { return p.dsn(p.Port(), DatabaseName) }

// CreateDatabase creates a database and returns its connection string.
func (p *Postgres) CreateDatabase(ctx context.Context, name string) (dsn string, err error) {
	conn, err := pgx.Connect(ctx, p.dsn(p.Port(), superuser))
	if err != nil {
		return "", fmt.Errorf("creating database %q: %w", name, err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return "", fmt.Errorf("creating database %q: %w", name, err)
	}
	return p.dsn(p.Port(), name), nil
}

// Done is closed when the server process, the one running at the time of the
// call, has ended.
func (p *Postgres) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.server.Done()
}

// Start starts a server again that was stopped or killed, on the same port
// and data. It returns once the server answers queries.
func (p *Postgres) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.start(ctx)
}

// Stop ends the server in order: transactions are rolled back, connections
// closed, everything is written to disk. When ctx ends first, the server is
// ended without that, which costs it a recovery at its next start and no data.
// With a Dir of the caller's the data stays, and Start continues with it; a
// temporary directory is removed. Stopping a stopped server is no error.
func (p *Postgres) Stop(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop(ctx)
	if !p.owned {
		return nil
	}
	return p.remove(ctx)
}

// remove deletes the directory, into which the last process of a killed
// server may still write for a moment.
func (p *Postgres) remove(ctx context.Context) error {
	const attempts = 50
	retry := time.NewTicker(100 * time.Millisecond)
	defer retry.Stop()
	for attempt := 1; ; attempt++ {
		err := os.RemoveAll(p.dir)
		if err == nil {
			return nil
		}
		if attempt == attempts || ctx.Err() != nil {
			return fmt.Errorf("removing PostgreSQL's temporary directory: %w", err)
		}
		select {
		case <-ctx.Done():
		case <-retry.C:
		}
	}
}

// Kill ends the server as a crash does (SIGKILL to the postmaster) and returns
// when that process is gone. Its backends notice by themselves a moment later.
// The data stays, and Start recovers it.
func (p *Postgres) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server != nil {
		p.server.Kill()
	}
}

// Restart is Stop and Start with the data kept.
func (p *Postgres) Restart(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop(ctx)
	return p.start(ctx)
}

func (p *Postgres) data() string { return filepath.Join(p.dir, "data") }

func (p *Postgres) dsn(port int, database string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", superuser, port, database)
}

func (p *Postgres) initialise(ctx context.Context) error {
	// Without --no-sync, initdb flushes every file of a database that nobody
	// minds losing.
	cmd := p.command(ctx, "initdb", "--pgdata", p.data(), "--username", superuser, "--auth", "trust",
		"--encoding", "UTF8", "--locale", "C", "--no-sync")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("creating the data directory (initdb): %w%s", err, lastLines(string(out)))
	}
	conf, err := os.OpenFile(filepath.Join(p.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("completing postgresql.conf: %w", err)
	}
	_, err = fmt.Fprintf(conf, "\ninclude_if_exists = '%s'\n", settingsFile)
	if err := errors.Join(err, conf.Close()); err != nil {
		return fmt.Errorf("completing postgresql.conf: %w", err)
	}
	return nil
}

// settingsFile is inside the data directory and written before every start,
// so that a copied data directory can be run with other settings.
const settingsFile = "orderprojector.conf"

func (p *Postgres) writeSettings() error {
	var b strings.Builder
	b.WriteString("log_line_prefix = '%m [%p] '\n")
	for _, name := range slices.Sorted(maps.Keys(p.config.Settings)) {
		fmt.Fprintf(&b, "%s = '%s'\n", name, strings.ReplaceAll(p.config.Settings[name], "'", "''"))
	}
	path := filepath.Join(p.data(), settingsFile)
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		return fmt.Errorf("writing the server's settings: %w", err)
	}
	return p.account.own(path)
}

// command runs one of the server's programs as an account that it accepts,
// from a directory that this account may enter, and with an environment in
// which no PG variable of the caller's leads it astray.
func (p *Postgres) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(p.binaries.dir, name), args...)
	cmd.Dir = p.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.account.credential}
	return cmd
}

// Failures that pass by themselves: backends of a killed server still hold
// its memory or data for a moment; somebody took the free port first.
var (
	leftovers = []string{
		"pre-existing shared memory block",
		`lock file "postmaster.pid"`,
		"is still in use",
	}
	portTaken = "Address already in use"
)

// start needs the mutex.
func (p *Postgres) start(ctx context.Context) error {
	if p.server != nil && p.server.Running() {
		return errors.New("the server is running already")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout,
		fmt.Errorf("PostgreSQL did not answer within %v", startTimeout))
	defer cancel()
	if err := p.writeSettings(); err != nil {
		return err
	}
	retry := time.NewTicker(200 * time.Millisecond)
	defer retry.Stop()
	for {
		began := time.Now()
		err := p.launch(ctx)
		if err == nil {
			p.log.Info("PostgreSQL is ready", "version", p.binaries.major, "port", p.port, "dir", p.dir,
				"pid", p.server.Pid(), "took", time.Since(began).Round(time.Millisecond))
			return nil
		}
		text := err.Error()
		taken := strings.Contains(text, portTaken) && p.config.Port == 0
		left := slices.ContainsFunc(leftovers, func(s string) bool { return strings.Contains(text, s) })
		if !taken && !left {
			return err
		}
		p.log.Debug("PostgreSQL did not start, trying again", "error", err)
		if taken {
			p.port = 0
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-retry.C:
		}
	}
}

// launch makes one attempt.
func (p *Postgres) launch(ctx context.Context) error {
	if p.port == 0 {
		ports, err := freeport.Take(ctx, 1)
		if err != nil {
			return err
		}
		p.port = ports[0]
	}
	out, err := os.OpenFile(p.LogFile(), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("opening PostgreSQL's log: %w", err)
	}
	defer out.Close()
	info, err := out.Stat()
	if err != nil {
		return fmt.Errorf("opening PostgreSQL's log: %w", err)
	}
	sockets := p.data()
	if len(sockets) > maxSocketPath {
		sockets = ""
	}
	// The server lives longer than ctx, which bounds its start.
	cmd := p.command(context.WithoutCancel(ctx), "postgres", "-D", p.data(), "-p", fmt.Sprint(p.port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="+sockets,
		"-c", "logging_collector=off", "-c", "log_destination=stderr")
	cmd.Stdout, cmd.Stderr = out, out
	// On SIGQUIT the postmaster ends its backends and gives up its memory at
	// once, which a SIGKILL would leave to chance.
	server, err := child.Start(cmd, syscall.SIGQUIT)
	if err != nil {
		return fmt.Errorf("starting the server process: %w", err)
	}
	p.server = server
	if err := p.awaitAnswer(ctx); err != nil {
		giveUp, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
		defer cancel()
		server.Stop(syscall.SIGQUIT, giveUp.Done())
		written, readErr := os.ReadFile(p.LogFile())
		if readErr != nil || int64(len(written)) < info.Size() {
			return err
		}
		return fmt.Errorf("%w%s", err, lastLines(string(written[info.Size():])))
	}
	return nil
}

func (p *Postgres) awaitAnswer(ctx context.Context) error {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		err := ping(ctx, p.dsn(p.port, superuser))
		if err == nil && p.server.Running() {
			return nil
		}
		select {
		case <-p.server.Done():
			return fmt.Errorf("the server ended while starting (%w)", p.server.Err())
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		case <-poll.C:
		}
	}
}

func ping(ctx context.Context, dsn string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.Ping(ctx)
}

// stop needs the mutex.
func (p *Postgres) stop(ctx context.Context) {
	if p.server == nil || !p.server.Running() {
		return
	}
	if p.server.Stop(syscall.SIGINT, ctx.Done()) { // "fast shutdown"
		p.log.Info("PostgreSQL stopped", "port", p.port)
	} else {
		p.log.Warn("PostgreSQL did not stop in time and was killed", "port", p.port)
	}
}

func (p *Postgres) ensureDatabase(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, p.dsn(p.port, superuser))
	if err != nil {
		return fmt.Errorf("looking for database %q: %w", name, err)
	}
	var exists bool
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&exists)
	if err := errors.Join(err, conn.Close(ctx)); err != nil {
		return fmt.Errorf("looking for database %q: %w", name, err)
	}
	if exists {
		return nil
	}
	_, err = p.CreateDatabase(ctx, name)
	return err
}

// lastLines shortens a program's output to what belongs in an error.
func lastLines(output string) string {
	const most = 15
	lines := strings.Split(strings.TrimSpace(output), "\n")
	if len(lines) > most {
		lines = lines[len(lines)-most:]
	}
	return "; its last lines:\n\t" + strings.Join(lines, "\n\t")
}
