package caddymodule

import (
	"reflect"

	"github.com/caddy-admission/gateway/admission/spool"
)

// spool reads
//
//	spool <directory> [{
//	    max_bytes        <size>
//	    max_age          <duration>
//	    max_items        <n>
//	    repository_share <part>
//	    key_file         <file>
//	}]
func (l *line) spool(p *Pool) {
	s := &Spool{}
	p.Spool = s
	if !l.want(1, 1, "one directory") {
		return
	}
	s.Path = l.args[0]
	l.block(l.path, map[string]word{
		"max_bytes":        {read: func(l *line) { l.size(&s.MaxBytes) }},
		"max_age":          {read: func(l *line) { l.span(&s.MaxAge) }},
		"max_items":        {read: func(l *line) { l.count(&s.MaxItems, 1, maxSpoolItems) }},
		"repository_share": {read: func(l *line) { l.part(&s.RepositoryShare) }},
		"key_file":         {read: func(l *line) { l.one(&s.KeyFile, "one file") }},
	})
}

// deliver reads
//
//	deliver <URL> [{
//	    permits         <n>
//	    fresh_wait      <duration>
//	    timeout         <duration>
//	    tries           <n>
//	    try_for         <duration>
//	    status          <code or class> done|again|never
//	    headers         <name…>
//	    secret_headers  <name…>
//	    tls_ca_file     <file>
//	    tls_server_name <name>
//	    tls_client_auth <certificate file> <key file>
//	    tls_insecure_skip_verify
//	}]
func (l *line) deliver(h *Hook) {
	if !l.want(1, 1, "one http or https URL") {
		return
	}
	h.Deliver = l.args[0]
	o, tls := &DeliverOptions{}, &spool.TLSConfig{}
	l.block(l.path, map[string]word{
		"permits":                  {read: func(l *line) { l.count(&o.Permits, 1, maxDeliverPermits) }},
		"fresh_wait":               {read: func(l *line) { l.span(&o.FreshWait) }},
		"timeout":                  {read: func(l *line) { l.span(&o.Timeout) }},
		"tries":                    {read: func(l *line) { l.count(&o.Tries, 1, maxTries) }},
		"try_for":                  {read: func(l *line) { l.span(&o.TryFor) }},
		"status":                   {read: func(l *line) { l.verdict(o) }, repeat: true},
		"headers":                  {read: func(l *line) { l.list(&o.Headers, "names of headers") }, repeat: true},
		"secret_headers":           {read: func(l *line) { l.list(&o.SecretHeaders, "names of headers") }, repeat: true},
		"tls_ca_file":              {read: func(l *line) { l.one(&tls.CAFile, "one file") }},
		"tls_server_name":          {read: func(l *line) { l.one(&tls.ServerName, "one name") }},
		"tls_client_auth":          {read: func(l *line) { l.clientAuth(tls) }},
		"tls_insecure_skip_verify": {read: func(l *line) { l.flag(&tls.InsecureSkipVerify) }},
	})
	if *tls != (spool.TLSConfig{}) {
		o.TLS = tls
	}
	if !reflect.DeepEqual(o, &DeliverOptions{}) {
		h.DeliverOptions = o
	}
}

func (l *line) verdict(o *DeliverOptions) {
	if !l.want(2, 2, statusText) {
		return
	}
	if !spool.ValidStatus(l.args[0], spool.Verdict(l.args[1])) {
		l.wrong(statusText)
		return
	}
	if o.Status == nil {
		o.Status = map[string]string{}
	}
	if _, twice := o.Status[l.args[0]]; twice {
		l.wrong("each code once")
		return
	}
	o.Status[l.args[0]] = l.args[1]
}

func (l *line) clientAuth(tls *spool.TLSConfig) {
	if l.want(2, 2, "<certificate file> <key file>") {
		tls.CertFile, tls.KeyFile = l.args[0], l.args[1]
	}
}

// part reads one number above 0 and up to 1.
func (l *line) part(to *float64) {
	if !l.want(1, 1, shareText) {
		return
	}
	n, ok := parseAmount(l.args[0], false)
	if !ok || n <= 0 || n > 1 {
		l.wrong(shareText)
		return
	}
	*to = n
}
