package telemetry

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

// Settings are the settings of OTLP, as the environment variables of OpenTelemetry have them.
type Settings struct {
	// Traces and Metrics are the URLs that receive each; "" sends none.
	Traces, Metrics string
	// Headers are sent with each request. They usually contain a key, and are never logged.
	TraceHeaders, MetricHeaders map[string]string
	// Timeout limits one request, and Interval is the time between two reports of figures.
	Timeout, Interval time.Duration
	// Roots are the certificate authorities of the receiver; nil means the system's.
	Roots *x509.CertPool
}

// On reports whether anything is sent.
func (s Settings) On() bool { return s.Traces != "" || s.Metrics != "" }

const (
	defaultTimeout  = 10 * time.Second
	defaultInterval = time.Minute
	// maxCertificate bounds the file of certificate authorities.
	maxCertificate = 1 << 20
)

// Read reads the settings. endpoint is the server's own setting, which precedes
// OTEL_EXPORTER_OTLP_ENDPOINT; getenv reads the environment. The SDK itself reads the variables of
// sampling, batches and the resource: OTEL_TRACES_SAMPLER, OTEL_BSP_*, OTEL_SPAN_*_LIMIT,
// OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES.
func Read(endpoint string, getenv func(string) string) (s Settings, err error) {
	if disabled, _ := strconv.ParseBool(getenv("OTEL_SDK_DISABLED")); disabled {
		return Settings{}, nil
	}
	if s.Traces, err = target(endpoint, getenv, "TRACES", "/v1/traces"); err != nil {
		return Settings{}, err
	}
	if s.Metrics, err = target(endpoint, getenv, "METRICS", "/v1/metrics"); err != nil || !s.On() {
		return Settings{}, err
	}
	if s.TraceHeaders, err = headers(getenv, "TRACES"); err != nil {
		return Settings{}, err
	}
	if s.MetricHeaders, err = headers(getenv, "METRICS"); err != nil {
		return Settings{}, err
	}
	if s.Timeout, err = milliseconds(getenv, "OTEL_EXPORTER_OTLP_TIMEOUT", defaultTimeout); err != nil {
		return Settings{}, err
	}
	if s.Interval, err = milliseconds(getenv, "OTEL_METRIC_EXPORT_INTERVAL", defaultInterval); err != nil {
		return Settings{}, err
	}
	if path := getenv("OTEL_EXPORTER_OTLP_CERTIFICATE"); path != "" {
		s.Roots, err = roots(path)
	}
	return s, err
}

// target returns the URL of one signal, or "" if it is not sent. Only the general endpoint gets the
// signal's path.
func target(endpoint string, getenv func(string) string, signal, path string) (string, error) {
	if exporter := getenv("OTEL_" + signal + "_EXPORTER"); exporter == "none" {
		return "", nil
	} else if exporter != "" && exporter != "otlp" {
		return "", settingFault("OTEL_"+signal+"_EXPORTER", "is neither otlp nor none", "use otlp, and let a collector convert it")
	}
	name, value := "OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT", getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT")
	if endpoint != "" || value == "" {
		name, value = "otlp_endpoint", endpoint
		if value == "" {
			name, value = "OTEL_EXPORTER_OTLP_ENDPOINT", getenv("OTEL_EXPORTER_OTLP_ENDPOINT")
		}
		if value == "" {
			return "", nil
		}
		value = strings.TrimRight(value, "/") + path
	}
	for _, v := range []string{"OTEL_EXPORTER_OTLP_" + signal + "_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if p := getenv(v); p != "" && p != "http/json" {
			return "", settingFault(v, "is not http/json, the only protocol that Crannog speaks", "set it to http/json; every OpenTelemetry collector accepts that on port 4318")
		}
	}
	u, err := url.Parse(value)
	// The error would quote the URL, which may contain a password.
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", settingFault(name, "is not a URL with http or https", "for example http://localhost:4318")
	}
	if u.User != nil {
		return "", settingFault(name, "contains a password", "put the key into OTEL_EXPORTER_OTLP_HEADERS")
	}
	return value, nil
}

// headers parses "name=value,name=value" with percent-encoded values.
func headers(getenv func(string) string, signal string) (map[string]string, error) {
	all := map[string]string{}
	for _, variable := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_" + signal + "_HEADERS"} {
		for pair := range strings.SplitSeq(getenv(variable), ",") {
			if strings.TrimSpace(pair) == "" {
				continue
			}
			name, value, ok := strings.Cut(pair, "=")
			text, err := url.PathUnescape(strings.TrimSpace(value))
			if !ok || err != nil || strings.TrimSpace(name) == "" {
				return nil, settingFault(variable, "is not a list of name=value, separated by commas", "write special characters as %XX")
			}
			all[strings.TrimSpace(name)] = text
		}
	}
	return all, nil
}

func milliseconds(getenv func(string) string, variable string, otherwise time.Duration) (time.Duration, error) {
	text := getenv(variable)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 {
		return 0, settingFault(variable, "is not a number of milliseconds from 1", "for example 10000")
	}
	return time.Duration(n) * time.Millisecond, nil
}

func roots(path string) (*x509.CertPool, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxCertificate {
		return nil, settingFault("OTEL_EXPORTER_OTLP_CERTIFICATE", "names a file that is larger than 1 MiB", "name a file with PEM certificates")
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, "telemetry_setting", "OTEL_EXPORTER_OTLP_CERTIFICATE names a file that cannot be read")
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, settingFault("OTEL_EXPORTER_OTLP_CERTIFICATE", "names a file without a PEM certificate", "name a file with PEM certificates")
	}
	return pool, nil
}

func settingFault(name, what, fix string) error {
	return fault.Newf(fault.Invalid, "telemetry_setting", "%s %s", name, what).WithHint(fix)
}

// client returns the HTTP client of the settings. It follows no redirect, because the headers
// contain a key.
func (s Settings) client() *http.Client {
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: s.Roots, MinVersion: tls.VersionTLS12},
		MaxIdleConns: 2, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 64 << 10,
	}
	return &http.Client{
		Transport: transport, Timeout: s.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
