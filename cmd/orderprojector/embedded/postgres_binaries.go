//go:build unix

package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded/cachedir"
)

// BinariesEnvVar names the environment variable that says which PostgreSQL
// server to run: a directory, or "download".
const BinariesEnvVar = "ORDERPROJECTOR_POSTGRES_BIN"

const (
	download     = "download"
	oldestServer = 14
	fetched      = embeddedpostgres.V18
)

// binaries is an installed server.
type binaries struct {
	dir   string // holds initdb and postgres
	major int
}

func findBinaries(ctx context.Context, choice string, log *slog.Logger) (binaries, error) {
	if choice == "" {
		choice = os.Getenv(BinariesEnvVar)
	}
	switch choice {
	case "":
		if b, ok := installedBinaries(ctx); ok {
			return b, nil
		}
		return fetchBinaries(ctx, log)
	case download:
		return fetchBinaries(ctx, log)
	default:
		b, err := inspect(ctx, choice)
		if err != nil {
			return binaries{}, fmt.Errorf("PostgreSQL server in %s (set %s to the directory of initdb and postgres, or to %q): %w",
				choice, BinariesEnvVar, download, err)
		}
		return b, nil
	}
}

// installedBinaries returns the newest usable server of this machine. The
// usual directories are looked at first, because distributions keep servers
// out of PATH.
func installedBinaries(ctx context.Context) (newest binaries, found bool) {
	var dirs []string
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",            // Debian
		"/usr/pgsql-*/bin",                     // Red Hat
		"/opt/homebrew/opt/postgresql@*/bin",   // macOS
		"/usr/local/opt/postgresql@*/bin",      // macOS on Intel
		"/usr/local/lib/postgresql/bin",        // source
		"/Applications/Postgres.app/*/*/*/bin", // macOS, as an application
	} {
		matches, err := filepath.Glob(pattern)
		if err == nil { // the patterns are constants
			dirs = append(dirs, matches...)
		}
	}
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, dir := range dirs {
		if b, err := inspect(ctx, dir); err == nil && b.major > newest.major {
			newest, found = b, true
		}
	}
	return newest, found
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

func inspect(ctx context.Context, dir string) (binaries, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return binaries{}, err
	}
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return binaries{}, err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return binaries{}, fmt.Errorf("asking postgres for its version: %w", err)
	}
	m := versionPattern.FindStringSubmatch(string(out))
	if m == nil {
		return binaries{}, fmt.Errorf("postgres --version says %q", strings.TrimSpace(string(out)))
	}
	major, err := strconv.Atoi(m[1])
	if err != nil {
		return binaries{}, fmt.Errorf("postgres --version says %q: %w", strings.TrimSpace(string(out)), err)
	}
	if major < oldestServer {
		return binaries{}, fmt.Errorf("its version is %d, and %d or later is needed", major, oldestServer)
	}
	return binaries{dir: dir, major: major}, nil
}

// fetchBinaries returns PostgreSQL 18 from the cache, which it fills from the
// Maven registry the first time.
func fetchBinaries(ctx context.Context, log *slog.Logger) (binaries, error) {
	name := fmt.Sprintf("postgresql-%s-%s-%s", fetched, runtime.GOOS, runtime.GOARCH)
	dir, err := cachedir.Fill(ctx, name, func(ctx context.Context, dir string) error {
		log.Info("fetching PostgreSQL, once", "version", string(fetched))
		return fetch(ctx, dir)
	})
	if err != nil {
		return binaries{}, fmt.Errorf("fetching PostgreSQL %s (install PostgreSQL %d or later, for example apt-get install postgresql, "+
			"or set %s): %w", fetched, oldestServer, BinariesEnvVar, err)
	}
	account, err := serverAccount()
	if err != nil {
		return binaries{}, err
	}
	bin := filepath.Join(dir, "bin")
	if err := account.mustReach(bin); err != nil {
		return binaries{}, fmt.Errorf("using the fetched PostgreSQL (%s moves the cache): %w", cachedir.EnvVar, err)
	}
	b, err := inspect(ctx, bin)
	if err != nil {
		return binaries{}, fmt.Errorf("using the fetched PostgreSQL (remove %s to fetch it again): %w", dir, err)
	}
	return b, nil
}

// fetch leaves the server in dir. The library knows where it is served and
// compares its checksum, but its way of running it does not suit us: it cannot
// as root, and it lets go of the process. So it is given a data directory that
// it cannot prepare, which it finds out right after unpacking.
func fetch(ctx context.Context, dir string) error {
	const unusable = "/." // refused by os.RemoveAll, with which it prepares the data directory
	runtimeDir := filepath.Join(dir, "runtime")
	library := embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(fetched).
		Port(0).
		CachePath(filepath.Join(dir, "archive")).
		BinariesPath(dir).
		RuntimePath(runtimeDir).
		DataPath(filepath.Join(dir, "data") + unusable).
		Logger(nil))
	result := make(chan error, 1)
	go func() { result <- library.Start() }() // it knows no context
	var err error
	select {
	case err = <-result:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err == nil {
		return errors.Join(errors.New("the library started a server although it was not to"), library.Stop())
	}
	if _, missing := os.Stat(filepath.Join(dir, "bin", "postgres")); missing != nil {
		return err // it failed before unpacking
	}
	for _, used := range []string{filepath.Join(dir, "archive"), runtimeDir} {
		if err := os.RemoveAll(used); err != nil {
			return fmt.Errorf("removing what is not needed any more: %w", err)
		}
	}
	return nil
}
