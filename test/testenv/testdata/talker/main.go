// Command talker is what the tests of Process run: it says that it is ready,
// and ends with exit code 3 on SIGTERM.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	fmt.Fprintln(os.Stderr, "starting with", os.Args[1:])
	fmt.Println("ready", os.Getenv("TALKER"), os.Getenv("DATABASE_URL"))
	<-signals
	os.Exit(3)
}
