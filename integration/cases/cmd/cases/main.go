// Command cases runs a file of cases against the built gateway.
//
//	go run ./integration/cases/cmd/cases -file F [-case ID[,ID…]]
//
// It prints one line per case and ends with status 1 when one fails, 2 when
// the file cannot be read.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/caddy-admission/gateway/integration/cases"
)

func main() {
	file := flag.String("file", "integration/cases/testdata/developers.json", "file of cases")
	only := flag.String("case", "", "run only these ids, separated by commas")
	parallel := flag.Int("parallel", cases.DefaultParallel, "light cases that run at once")
	scale := flag.Float64("scale", cases.ScaleFromEnv(), "factor on upper time bounds")
	keep := flag.Bool("keep", false, "keep the directories of failed cases")
	trace := flag.Bool("trace", false, "print every step")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, *file, *only, *parallel, *scale, *keep, *trace))
}

func run(ctx context.Context, file, only string, parallel int, scale float64, keep, trace bool) int {
	list, err := cases.Load(file)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if only != "" {
		ids := strings.Split(only, ",")
		list = slices.DeleteFunc(list, func(c cases.Case) bool { return !slices.Contains(ids, c.ID) })
		if len(list) != len(ids) {
			fmt.Fprintf(os.Stderr, "%s: not all of %s are there\n", file, only)
			return 2
		}
	}
	binary, err := cases.Binary(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	r := &cases.Runner{Binary: binary, Scale: scale, Keep: keep}
	if trace {
		r.Trace = os.Stderr
	}
	failed := 0
	r.RunAll(ctx, list, parallel, func(result cases.Result) {
		fmt.Println(result)
		if trace {
			fmt.Fprintf(os.Stderr, "%s took %.1f s\n", result.ID, result.Took.Seconds())
		}
		if result.Dir != "" {
			fmt.Fprintln(os.Stderr, "kept:", result.Dir)
		}
		if !result.Passed() {
			failed++
		}
	})
	fmt.Fprintf(os.Stderr, "%d of %d passed\n", len(list)-failed, len(list))
	if failed > 0 || ctx.Err() != nil {
		return 1
	}
	return 0
}
