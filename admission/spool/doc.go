// Package spool keeps verified webhook deliveries on disk until their
// receiver took them, and delivers them.
//
// # Use
//
// The owner of the process opens one [Spool] per directory, names the hooks
// with [Spool.SetHooks] when a configuration starts, and closes it at the
// end. An ingress makes one call per delivery, after it has verified it and
// while it still holds its permit:
//
//	answer, err := sp.Accept(ctx, hookName, &spool.Delivery{
//		Provider: "github", ID: id, Event: event, Repository: repo,
//		Query: r.URL.RawQuery, Header: r.Header, Body: body, NotAfter: expires,
//	})
//	if err != nil {
//		// 503 "webhook ingestion overloaded"; spool.Reason(err) for metrics.
//	}
//	// answer.Status, answer.ContentType, answer.Body
//
// ctx carries the ingress's own deadline. Accept returns within FreshWait and
// the time of one disk sync, or when ctx ends.
//
// # Promises
//
// Kept means durable: Keep and Accept answer only after the record, and the
// directory when a file was begun, are synced. Every kept delivery is
// delivered at least once, or is set aside as dead where an operator sees it,
// or is dropped with a counted reason; none leaves silently. A receiver can
// see one twice: when the process dies or the connection breaks between its
// answer and the note of it, when the power fails within a second of its
// answer, and when the sender sends it again after an error.
//
// Deliveries of one repository are attempted one at a time in the order they
// were kept. [Schedule] says how repositories take turns.
//
// # What is written
//
// The body, the headers named in keptHeaders and those the hook names, and
// what the listings show. Authorization, X-Gitlab-Token, all signatures, the
// headers the hook calls secret and the whole query are sealed with
// AES-256-GCM under the spool's key file; a header whose value the configuration knows is left out
// and supplied again at each attempt. Every other header is dropped. Files
// have mode 0600, the directory 0700.
//
// # Files
//
// A log of segments (see record.go), a lock, the format, the key, and the
// directory "aside" with damaged segments. What is assumed of the file system
// stands at [Disk].
package spool
