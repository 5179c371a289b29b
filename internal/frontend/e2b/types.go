package e2b

import "time"

// This file contains the types of E2B's API. Clients require the fields without omitempty: the
// Python SDK raises KeyError without them.

// sandboxBody is the response to create and connect.
type sandboxBody struct {
	SandboxID          string  `json:"sandboxID"`
	TemplateID         string  `json:"templateID"`
	ClientID           string  `json:"clientID"`
	EnvdVersion        string  `json:"envdVersion"`
	Alias              string  `json:"alias,omitempty"`
	EnvdAccessToken    string  `json:"envdAccessToken"`
	TrafficAccessToken *string `json:"trafficAccessToken"`
	Domain             *string `json:"domain"`
}

// listedBody is a row of a list.
type listedBody struct {
	SandboxID    string            `json:"sandboxID"`
	TemplateID   string            `json:"templateID"`
	ClientID     string            `json:"clientID"`
	Alias        string            `json:"alias,omitempty"`
	StartedAt    time.Time         `json:"startedAt"`
	EndAt        time.Time         `json:"endAt"`
	State        string            `json:"state"`
	CPUCount     int64             `json:"cpuCount"`
	MemoryMB     int64             `json:"memoryMB"`
	DiskSizeMB   int64             `json:"diskSizeMB"`
	EnvdVersion  string            `json:"envdVersion"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	VolumeMounts []volumeMountBody `json:"volumeMounts"`
}

// detailBody is the response to info.
type detailBody struct {
	listedBody
	EnvdAccessToken     string        `json:"envdAccessToken"`
	Domain              *string       `json:"domain"`
	AllowInternetAccess bool          `json:"allowInternetAccess"`
	Network             networkBody   `json:"network"`
	Lifecycle           lifecycleBody `json:"lifecycle"`
	Limits              limitsBody    `json:"limits"`
}

type networkBody struct {
	AllowOut           []string              `json:"allowOut,omitempty"`
	DenyOut            []string              `json:"denyOut,omitempty"`
	Rules              map[string][]ruleBody `json:"rules,omitempty"`
	AllowPublicTraffic bool                  `json:"allowPublicTraffic"`
	MaskRequestHost    string                `json:"maskRequestHost,omitempty"`
}

type lifecycleBody struct {
	OnTimeout  string `json:"onTimeout"`
	AutoResume bool   `json:"autoResume"`
}

// limitsBody is Crannog's extension of the API: a field of create and of info.
type limitsBody struct {
	MemoryMB              *int64 `json:"memoryMB,omitempty"`
	CPUMillis             *int64 `json:"cpuMillis,omitempty"`
	PIDs                  *int64 `json:"pids,omitempty"`
	DiskMB                *int64 `json:"diskMB,omitempty"`
	Inodes                *int64 `json:"inodes,omitempty"`
	ShmMB                 *int64 `json:"shmMB,omitempty"`
	CommandTimeoutSeconds *int64 `json:"commandTimeoutSeconds,omitempty"`
	OutputBytes           *int64 `json:"outputBytes,omitempty"`
}

type metricBody struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	CPUCount      int64     `json:"cpuCount"`
	CPUUsedPct    float64   `json:"cpuUsedPct"`
	MemUsed       int64     `json:"memUsed"`
	MemTotal      int64     `json:"memTotal"`
	MemCache      int64     `json:"memCache"`
	DiskUsed      int64     `json:"diskUsed"`
	DiskTotal     int64     `json:"diskTotal"`
}

type logLine struct {
	Timestamp time.Time `json:"timestamp"`
	Line      string    `json:"line"`
}

type logEntry struct {
	Timestamp time.Time         `json:"timestamp"`
	Message   string            `json:"message"`
	Level     string            `json:"level"`
	Fields    map[string]string `json:"fields"`
}
