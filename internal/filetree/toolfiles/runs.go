package toolfiles

import "slices"

// Runs returns the files that tools execute or obey without being asked: when a directory is
// entered or opened, by git's own commands, when dependencies are installed, or by the tools that
// build the project. Files that git runs inside .git are in package changeset.
func Runs() []Entry {
	return slices.Concat(versionControl(), shells(), editors(), agents(), builds(), scripting(), pipelines())
}

// versionControl returns files of version control systems and their hooks.
func versionControl() []Entry {
	return slices.Concat(
		each("git", "applied by git's own commands", ".gitattributes", ".gitmodules", ".gitconfig"),
		each("git-lfs", "names the server that files are fetched from", ".lfsconfig"),
		each("Mercurial", "hooks and extensions run with any hg command", ".hg/hgrc", ".hg/hgrc-not-shared", ".hgsub", ".hgsubstate"),
		each("Jujutsu", "aliases and tools of a repository", ".jj/repo/config.toml"),
		each("Breezy", "hooks and plug-ins of a branch", ".bzr/branch/branch.conf"),
		each("Perforce", "names the server and its commands", ".p4config"),
		each("husky", "runs as git hooks", ".husky/", ".huskyrc*"),
		each("git", "directories that are often set as the one of the hooks", ".githooks/"),
		each("Lefthook", "runs as git hooks", "lefthook.*", ".lefthook.*", "lefthook-local.*", ".lefthook-local.*", ".lefthook/", ".lefthook-local/"),
		each("pre-commit", "runs as git hooks", ".pre-commit-config.yaml", ".pre-commit-hooks.yaml", "prek.toml"),
		each("Overcommit", "runs as git hooks", ".overcommit.yml", ".git-hooks/"),
		each("simple-git-hooks", "runs as git hooks", ".simple-git-hooks.*", "simple-git-hooks.*"),
		each("lint-staged", "runs in a git hook", ".lintstagedrc*", "lint-staged.config.*"),
		each("CaptainHook", "runs as git hooks", "captainhook.json"),
	)
}

// shells returns files that shells and terminal programs run.
func shells() []Entry {
	return slices.Concat(
		each("direnv", "runs when the directory is entered", ".envrc", ".direnv/"),
		each("autoenv", "runs when the directory is entered or left", ".autoenv", ".autoenv.zsh", ".autoenv_leave.zsh"),
		each("mise", "sets tools, variables and hooks when the directory is entered", "mise.toml", ".mise.toml", "mise.local.toml", ".mise.local.toml", "mise.*.toml", ".mise/", ".config/mise.toml", ".config/mise/"),
		each("asdf", "chooses programs, also by path, when the directory is entered", ".tool-versions"),
		each("SDKMAN", "chooses programs when the directory is entered", ".sdkmanrc"),
		each("devbox", "runs its hooks when the directory is entered", "devbox.json"),
		each("devenv", "runs when the directory is entered", "devenv.nix", "devenv.yaml", "devenv.local.nix"),
		each("Nix", "evaluated and built by nix develop and nix-shell, which direnv starts", "flake.nix", "shell.nix", "default.nix"),
		each("a shell", "runs when one starts with this home", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".mkshrc", ".cshrc", ".tcshrc", ".login", ".logout", ".xonshrc", ".config/fish/", ".config/xonsh/"),
		each("readline", "binds keys of all that reads lines", ".inputrc"),
		each("tmux and screen", "run commands at their start", ".tmux.conf", ".screenrc"),
		each("curl and wget", "add options to each call from this home", ".curlrc", ".wgetrc"),
	)
}

// editors returns files that editors run.
func editors() []Entry {
	return slices.Concat(
		each("Visual Studio Code and its relatives", "settings and tasks of a folder, when it is opened", ".vscode/", ".vscode-test/", "*.code-workspace", ".theia/"),
		each("JetBrains", "run configurations and tools of a project, when it is opened", ".idea/", ".run/", ".fleet/", "*.iml"),
		each("Zed", "settings and tasks of a folder, when it is opened", ".zed/"),
		each("Visual Studio", "settings of a solution, when it is opened", ".vs/", "*.csproj.user", "*.vcxproj.user"),
		each("Eclipse", "builders of a project, when it is opened", ".project", ".settings/", ".externaltoolbuilders/", ".factorypath"),
		each("NetBeans", "build scripts of a project, when it is opened", "nbproject/"),
		each("Sublime Text", "build systems of a project", "*.sublime-project", "*.sublime-workspace"),
		each("Nova", "tasks of a project", ".nova/"),
		each("Helix", "language servers of a folder", ".helix/"),
		each("Vim", "runs when a file of the directory is opened, where exrc or a plug-in for local settings is on", ".vimrc", "_vimrc", ".exrc", "_exrc", ".nvimrc", ".nvim.lua", ".lvimrc", ".local.vimrc", ".vim/"),
		each("Emacs", "sets variables when a file below it is opened", ".dir-locals.el", ".dir-locals-2.el"),
		each("YouCompleteMe", "runs when a file of the directory is opened", ".ycm_extra_conf.py"),
		each("HLS", "runs the program that it names when a file is opened", "hie.yaml"),
		each("OmniSharp", "loads what it names when a folder is opened", "omnisharp.json"),
		each("ESLint", "runs in an editor when a file is opened", "eslint.config.*", ".eslintrc.js", ".eslintrc.cjs"),
		each("Prettier", "runs in an editor when a file is saved", "prettier.config.*", ".prettierrc.js", ".prettierrc.cjs", ".prettierrc.mjs", ".prettierrc.ts"),
		each("Stylelint", "runs in an editor when a file is opened", "stylelint.config.*", ".stylelintrc.js", ".stylelintrc.cjs", ".stylelintrc.mjs"),
		each("Tailwind", "runs in an editor when a file is opened", "tailwind.config.*"),
		each("development containers", "runs commands on the host and in the container when a folder is opened", ".devcontainer/", ".devcontainer.json"),
		each("Gitpod, IDX, Replit and CodeSandbox", "run commands when a workspace is opened", ".gitpod.yml", ".idx/", ".replit", "replit.nix", ".codesandbox/"),
	)
}

// agents returns files that coding agents obey.
func agents() []Entry {
	return slices.Concat(
		each("coding agents", "give orders to the next agent that works here", "agents.md", "agents.override.md", "claude.md", "claude.local.md", "gemini.md", "qwen.md", "crush.md", "warp.md", ".rules", ".cursorrules", ".windsurfrules", ".clinerules", ".clinerules/", ".roorules*", ".goosehints", ".github/copilot-instructions.md", ".github/instructions/", ".github/prompts/", ".github/chatmodes/", ".github/agents/", ".github/hooks/"),
		each("clients of MCP", "start the servers that it names", ".mcp.json", "mcp.json"),
		each("Claude Code", "hooks, permissions and servers", ".claude/", ".claude.json", ".claude-plugin/"),
		each("Cursor", "hooks and servers", ".cursor/"),
		each("Codex", "settings and servers", ".codex/"),
		each("Gemini CLI", "settings and servers", ".gemini/"),
		each("Qwen Code", "settings and servers", ".qwen/"),
		each("OpenCode", "settings, plug-ins and servers", "opencode.json", "opencode.jsonc", ".opencode/"),
		each("Windsurf", "workflows and rules", ".windsurf/", ".codeium/"),
		each("Continue", "settings and servers", ".continue/", ".continuerc.json"),
		each("Roo Code", "modes and servers", ".roo/", ".roomodes"),
		each("Kilo Code", "modes and servers", ".kilocode/", ".kilocodemodes"),
		each("Aider", "options, among them commands for linting and tests", ".aider.conf.yml", ".aider.model.settings.yml"),
		each("Amazon Q and Kiro", "agents and servers", ".amazonq/", ".kiro/"),
		each("Crush", "settings and servers", "crush.json", ".crush.json", ".crush/"),
		each("Goose", "recipes and hints", ".goose/"),
		each("OpenHands", "runs setup.sh and obeys its notes", ".openhands/"),
		each("Junie, Augment, Trae, Factory, Amp and Zencoder", "settings, rules and servers", ".junie/", ".augment/", ".trae/", ".factory/", ".amp/", ".zencoder/"),
	)
}
