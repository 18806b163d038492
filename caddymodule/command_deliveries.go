package caddymodule

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/caddy-admission/gateway/admission/spool"
	"github.com/caddy-admission/gateway/internal/adminapi"
)

// deliveriesFlags choose deliveries and where they are read from.
type deliveriesFlags struct {
	adminFlags
	pool, dir string
	filter    spool.Filter
}

func (f *deliveriesFlags) choose(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.filter.Hook, "hook", "", "Only those of this hook")
	cmd.Flags().StringVar(&f.filter.Repository, "repository", "", "Only those of this repository")
	cmd.Flags().StringVar(&f.filter.State, "state", "", "Only those in this state: due or dead")
	cmd.Flags().IntVar(&f.filter.Limit, "limit", 0, "At most so many of each pool")
}

// addDir is the flag of commands that can read the files.
func (f *deliveriesFlags) addDir(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.dir, "dir", "", "Read this spool directory instead of asking Caddy")
}

func (f *deliveriesFlags) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{
		"pool": f.pool, "hook": f.filter.Hook, "repository": f.filter.Repository, "state": f.filter.State,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if f.filter.Limit > 0 {
		q.Set("limit", strconv.Itoa(f.filter.Limit))
	}
	return q
}

func deliveriesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deliveries",
		Short: "Lists and handles kept and refused webhook deliveries",
		Long: `Lists and handles kept and refused webhook deliveries.

list, show and export read the files of the spool when Caddy is down: give its
directory with --dir, or the configuration with --config.`,
	}
	cmd.AddCommand(listDeliveries(), showDelivery(), replayDeliveries(), dropDeliveries(), exportDeliveries())
	return cmd
}

// subcommand makes one command with the flags that all have.
func subcommand(use, short string, args cobra.PositionalArgs, run func(f *deliveriesFlags, w io.Writer, args []string) error) (*cobra.Command, *deliveriesFlags) {
	f := new(deliveriesFlags)
	cmd := &cobra.Command{Use: use, Short: short, Args: args}
	f.add(cmd)
	cmd.Flags().StringVar(&f.pool, "pool", "", "The pool, where several keep deliveries")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return run(f, cmd.OutOrStdout(), args) }
	return cmd, f
}

func listDeliveries() *cobra.Command {
	var refused bool
	cmd, f := subcommand("list", "Lists what is kept, or with --refused what was not taken and who recovers it", cobra.NoArgs,
		func(f *deliveriesFlags, w io.Writer, _ []string) error {
			if refused {
				return f.listRefused(w)
			}
			list, err := f.list()
			if err != nil {
				return err
			}
			if f.json {
				return printJSON(w, list)
			}
			return printDeliveries(w, list)
		})
	f.choose(cmd)
	f.addDir(cmd)
	cmd.Flags().BoolVar(&refused, "refused", false, "The newest deliveries that were not taken")
	return cmd
}

func (f *deliveriesFlags) list() (out adminapi.Deliveries, err error) {
	err = f.ask(adminapi.DeliveriesPath, &out, func(r *spool.Reader) error {
		for _, it := range r.List(f.filter) {
			out.Deliveries = append(out.Deliveries, adminapi.Kept{Item: it})
		}
		return nil
	})
	return out, err
}

func (f *deliveriesFlags) listRefused(w io.Writer) error {
	var list adminapi.RefusedDeliveries
	if err := f.call(http.MethodGet, adminapi.RefusedPath+"?"+f.query().Encode(), nil, &list); err != nil {
		return err
	}
	if f.json {
		return printJSON(w, list)
	}
	return printRefused(w, list)
}

func showDelivery() *cobra.Command {
	var body bool
	cmd, f := subcommand("show ID", "Shows one delivery with its headers", cobra.ExactArgs(1),
		func(f *deliveriesFlags, w io.Writer, args []string) error {
			q := f.query()
			if body {
				q.Set("body", "1")
			}
			var d adminapi.Delivery
			err := f.askQuery(adminapi.DeliveriesPath+"/"+url.PathEscape(args[0]), q, &d, func(r *spool.Reader) (err error) {
				d.Detail, err = r.Show(args[0], body)
				return err
			})
			if err != nil {
				return err
			}
			if f.json {
				return printJSON(w, d)
			}
			return printDelivery(w, &d)
		})
	f.addDir(cmd)
	cmd.Flags().BoolVar(&body, "body", false, "With its body")
	return cmd
}

func exportDeliveries() *cobra.Command {
	cmd, f := subcommand("export", "Writes deliveries as JSON lines, with bodies and without credentials", cobra.NoArgs,
		func(f *deliveriesFlags, w io.Writer, _ []string) error {
			body, err := f.openUnlessDir(adminapi.ExportPath + "?" + f.query().Encode())
			if err != nil {
				return f.readFiles(err, func(r *spool.Reader) error { return r.Export(w, f.filter) })
			}
			defer func() { _ = body.Close() }()
			_, err = io.Copy(w, body)
			return err
		})
	f.choose(cmd)
	f.addDir(cmd)
	return cmd
}

func replayDeliveries() *cobra.Command {
	return actOnDeliveries("replay", "Makes deliveries due now, dead ones too, with all their tries again", http.MethodPost, "/"+adminapi.ReplayWord)
}

func dropDeliveries() *cobra.Command {
	return actOnDeliveries("drop", "Removes deliveries for good", http.MethodDelete, "")
}

// actOnDeliveries makes a command that acts on each named delivery, or on all
// dead ones that the flags choose.
func actOnDeliveries(verb, short, method, suffix string) *cobra.Command {
	var dead bool
	cmd, f := subcommand(verb+" ID…", short, cobra.ArbitraryArgs, func(f *deliveriesFlags, w io.Writer, ids []string) error {
		if dead == (len(ids) > 0) {
			return errors.New("allowed: one or more ids, or --dead")
		}
		if dead {
			f.filter.State = "dead"
			list, err := f.list()
			if err != nil {
				return err
			}
			for _, d := range list.Deliveries {
				ids = append(ids, d.ID)
			}
		}
		var errs []error
		q := url.Values{}
		if f.pool != "" {
			q.Set("pool", f.pool)
		}
		done := []string{}
		for _, id := range ids {
			if err := f.call(method, adminapi.DeliveriesPath+"/"+url.PathEscape(id)+suffix+"?"+q.Encode(), nil, nil); err != nil {
				errs = append(errs, fmt.Errorf("%s %s: %w", verb, id, err))
				continue
			}
			done = append(done, id)
		}
		if f.json {
			errs = append(errs, printJSON(w, map[string][]string{verb: done}))
		} else {
			_, _ = fmt.Fprintf(w, "%s: %d of %d\n", verb, len(done), len(ids))
		}
		return errors.Join(errs...)
	})
	f.choose(cmd)
	cmd.Flags().BoolVar(&dead, "dead", false, "All dead ones that the other flags choose")
	return cmd
}

// ask asks the running gateway, or reads the files when it is down.
func (f *deliveriesFlags) ask(path string, answer any, files func(*spool.Reader) error) error {
	return f.askQuery(path, f.query(), answer, files)
}

func (f *deliveriesFlags) askQuery(path string, q url.Values, answer any, files func(*spool.Reader) error) error {
	if f.dir != "" {
		return f.readFiles(nil, files)
	}
	err := f.call(http.MethodGet, path+"?"+q.Encode(), nil, answer)
	if err == nil {
		return nil
	}
	return f.readFiles(err, files)
}

var errReadFiles = errors.New("read the files")

func (f *deliveriesFlags) openUnlessDir(path string) (io.ReadCloser, error) {
	if f.dir != "" {
		return nil, errReadFiles
	}
	return f.open(http.MethodGet, path, nil)
}

// readFiles reads the directories of the flags. cause is why Caddy was not
// asked: when it answered, it knows better than the files.
func (f *deliveriesFlags) readFiles(cause error, read func(*spool.Reader) error) error {
	dirs := []string{f.dir}
	if f.dir == "" {
		if !errors.As(cause, new(*unreachableError)) {
			return cause
		}
		var err error
		if dirs, err = f.configuredDirs(); err != nil || len(dirs) == 0 {
			return errors.Join(cause, err, errors.New("to read the files of the spool, give --dir <directory> or --config <file>"))
		}
	}
	var errs []error
	for _, dir := range dirs {
		r, err := spool.OpenReader(dir, nil)
		if err == nil {
			err = read(r)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// configuredDirs are the spool directories of --config.
func (f *deliveriesFlags) configuredDirs() ([]string, error) {
	if f.config == "" {
		return nil, nil
	}
	ctx, err := provision(f.config, f.adapter)
	if err != nil {
		return nil, err
	}
	app, err := ctx.App("admission")
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, def := range app.(*App).defs {
		if def.spool != nil && (f.pool == "" || def.pool == app.(*App).defs[f.pool].pool) {
			dirs = append(dirs, def.spool.config.Dir)
		}
	}
	return dirs, nil
}
