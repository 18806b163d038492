// Command gogit clones and pushes with go-git, the library that many CI tools
// and forges' own clients are built on. Unlike git it sends the credential
// with its first request and never without. It is a module of its own, so that
// the library stays out of the gateway's.
//
//	gogit clone <url> <directory>
//	gogit push <directory>
//
// GOGIT_USER and GOGIT_SECRET hold the credential.
package main

import (
	"fmt"
	"os"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing/transport/http"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gogit:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	auth := &http.BasicAuth{Username: os.Getenv("GOGIT_USER"), Password: os.Getenv("GOGIT_SECRET")}
	switch {
	case len(args) == 3 && args[0] == "clone":
		_, err := git.PlainClone(args[2], false, &git.CloneOptions{URL: args[1], Auth: auth})
		return err
	case len(args) == 2 && args[0] == "push":
		r, err := git.PlainOpen(args[1])
		if err != nil {
			return err
		}
		return r.Push(&git.PushOptions{Auth: auth})
	}
	return fmt.Errorf("usage: gogit clone <url> <directory> | gogit push <directory>; got %q", args)
}
