package toolfiles

import "slices"

// Credentials returns the files in which tools store credentials, and the usual names of keys. Each
// of them is a secret wherever it is, so every level except minimal hides it. Names that are often
// harmless, such as *.pem or .npmrc, are in Suspects.
func Credentials() []Entry {
	return slices.Concat(
		each("OpenSSH", "private keys and what belongs to them", ".ssh/", "id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk"),
		each("PuTTY", "private keys", "*.ppk"),
		each("GnuPG", "private keys", ".gnupg/"),
		each("pass and KeePass", "passwords", ".password-store/", "*.kdbx"),
		each("git", "passwords of remotes", ".git-credentials", ".config/git/credentials"),
		each("curl, ftp and others", "passwords by host", ".netrc", "_netrc"),
		each("GitHub's and GitLab's command lines", "tokens", ".config/gh/hosts.yml", ".config/glab-cli/config.yml"),
		each("AWS", "keys and sessions", ".aws/"),
		each("Google Cloud", "tokens and keys", ".config/gcloud/", "application_default_credentials.json", ".boto"),
		each("Azure", "tokens", ".azure/"),
		each("Oracle Cloud, DigitalOcean, Fly, Hetzner and Linode", "tokens and keys", ".oci/", ".config/doctl/config.yaml", ".fly/config.yml", ".config/hcloud/cli.toml", ".config/linode-cli"),
		each("kubectl", "certificates and tokens of clusters", ".kube/"),
		each("Docker and Podman", "passwords of registries", ".docker/config.json", ".dockercfg", "containers/auth.json"),
		each("Helm", "passwords of registries", "helm/registry/config.json"),
		each("Terraform and Pulumi", "tokens", ".terraform.d/credentials.tfrc.json", ".pulumi/credentials.json"),
		each("Vault", "its token", ".vault-token"),
		each("s3cmd and rclone", "keys of stores", ".s3cfg", "rclone.conf"),
		each("PostgreSQL and MySQL", "passwords by host", ".pgpass", ".my.cnf", ".mylogin.cnf"),
		each("Cargo and RubyGems", "tokens of registries", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials"),
		each("Hugging Face and Databricks", "tokens", "huggingface/token", "huggingface/stored_tokens", ".huggingface/token", ".databrickscfg"),
		each("coding agents", "tokens of their accounts", ".claude/.credentials.json", ".codex/auth.json", ".gemini/oauth_creds.json", ".config/github-copilot/", "opencode/auth.json"),
	)
}

// Settings returns files that usually hold a program's secrets and are not committed. The levels
// standard and strict hide them.
func Settings() []Entry {
	return slices.Concat(
		each("dotenv", "secrets of a program", ".env", ".env.local", ".env.development.local", ".env.test.local", ".env.production.local", ".env.staging.local"),
		each("PyPI's tools", "passwords and tokens of registries", ".pypirc"),
		each("Ruby on Rails", "the key of the encrypted credentials", "config/master.key", "config/credentials/production.key"),
		each("Firebase and Google services", "private keys of service accounts", "serviceaccountkey.json", "service-account.json", "service_account.json"),
	)
}

// Suspects returns names of files that often hold a key or token, and as often do not:
// certificates, key stores for tests, settings of registries. A project may not build without them,
// so only the level strict hides them.
func Suspects() []Entry {
	return slices.Concat(
		each("dotenv", "secrets of a program", ".env.*"),
		each("OpenSSL", "private keys and certificates", "*.pem", "*.key"),
		each("PKCS #12 and Java", "private keys and certificates", "*.p12", "*.pfx", "*.jks", "*.keystore"),
		each("OpenSSH", "private keys by other names", "id_*"),
		each("npm", "tokens of registries", ".npmrc"),
	)
}
