package toolfiles

import "slices"

// builds returns files of build tools and package managers.
func builds() []Entry {
	return slices.Concat(
		each("make", "runs with the next build", "makefile", "gnumakefile"),
		each("just and Task", "run with the next build", "justfile", ".justfile", "taskfile.yml", "taskfile.yaml", "taskfile.dist.yml"),
		each("CMake", "configured by editors when a folder is opened", "cmakelists.txt", "*.cmake", "cmakepresets.json", "cmakeuserpresets.json"),
		each("Meson and SCons", "run with the next build", "meson.build", "sconstruct", "sconscript"),
		each("Bazel", "options and wrappers of each bazel command", ".bazelrc", "tools/bazel", ".bazeliskrc", ".bazelversion", "*.bazelrc", "workspace.bazel", "module.bazel"),
		each("Buck", "options of each buck command", ".buckconfig", ".buckconfig.local", ".buckconfig.d/"),
		each("Pants", "options and plug-ins of each pants command", "pants.toml", ".pants.rc"),
		each("Maven", "options, extensions and the program that is downloaded", ".mvn/", "mvnw", "mvnw.cmd"),
		each("Gradle", "imported by editors when a folder is opened", "build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts", "init.gradle", "init.gradle.kts", "gradle.properties", "gradle/wrapper/", "gradlew", "gradlew.bat"),
		each("sbt and Mill", "imported by editors when a folder is opened", "build.sbt", "plugins.sbt", "build.properties", ".sbtopts", ".jvmopts", "build.sc", "build.mill", ".mill-version", ".mill-jvm-opts", ".mill-opts"),
		each("Rust", "chooses the compiler, also by path, or runs with the next build", "rust-toolchain", "rust-toolchain.toml", "build.rs", ".cargo/config", ".cargo/config.toml"),
		each("MSBuild and NuGet", "imported by editors when a folder is opened", "directory.build.props", "directory.build.targets", "directory.build.rsp", "directory.packages.props", "nuget.config", "global.json", "*.targets", ".config/dotnet-tools.json"),
		each("node-gyp", "builds when a package is installed", "binding.gyp"),
		each("npm, yarn, pnpm and bun", "where packages come from, and code that runs at each command", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".pnpmfile.mjs", "pnpm-workspace.yaml", "bunfig.toml", ".pnp.cjs", ".pnp.loader.mjs", ".yarn/plugins/", ".yarn/releases/", ".yarn/sdks/"),
		each("pip, uv, Poetry and conda", "where packages come from", "pip.conf", "pip.ini", "uv.toml", "poetry.toml", ".pypirc", ".condarc"),
		each("Bundler", "where packages come from, and where its programs are", ".bundle/"),
		each("Terraform and Terragrunt", "providers that run from there, and hooks", ".terraform/", ".terraformrc", "terragrunt.hcl", ".tflint.hcl"),
		each("Docker Compose", "merged without being named", "docker-compose.override.yml", "docker-compose.override.yaml", "compose.override.yml", "compose.override.yaml"),
		each("Vagrant", "runs at each vagrant command", "vagrantfile"),
	)
}

// scripting returns files that interpreters and their tools run when they start in a directory.
func scripting() []Entry {
	return slices.Concat(
		each("Python", "runs when it starts, or when a package is installed", "sitecustomize.py", "usercustomize.py", "*.pth", "setup.py"),
		each("pytest", "runs when tests are collected, which editors do", "conftest.py"),
		each("pdb", "runs when the debugger starts here", ".pdbrc"),
		each("Pylint and mypy", "run in an editor when a file is opened", ".pylintrc", "pylintrc", ".mypy.ini", "mypy.ini"),
		each("Jupyter", "runs when it starts here", "jupyter_notebook_config.py", "jupyter_server_config.py", "jupyter_lab_config.py", "jupyter_config.py", "ipython_config.py"),
		each("Ruby", "runs when a console starts here, or in an editor", ".irbrc", ".pryrc", ".rspec", "gemfile", ".rubocop.yml", ".solargraph.yml"),
		each("PHP", "runs before each script, or in an editor", ".user.ini", ".htaccess", ".php-cs-fixer.php", ".php-cs-fixer.dist.php", "phpstan.neon", "phpstan.neon.dist"),
		each("Elixir and Erlang", "run when a console starts here, or in an editor", ".iex.exs", ".formatter.exs", ".credo.exs", "mix.exs", "rebar.config", "rebar.config.script", ".erlang"),
		each("GHC", "runs when a console starts here", ".ghci", "setup.hs", "setup.lhs"),
		each("R", "runs when it starts here", ".rprofile", ".renviron"),
		each("Perl", "runs when the debugger starts here", ".perldb"),
		each("Octave and MATLAB", "run when they start here", ".octaverc", "startup.m"),
		each("gdb and lldb", "run when a debugger starts here", ".gdbinit", ".lldbinit", "*-gdb.py"),
	)
}

// pipelines returns files of CI and hosting services.
func pipelines() []Entry {
	return slices.Concat(
		each("GitHub", "runs in CI with the repository's credentials", ".github/workflows/", ".github/actions/", ".github/dependabot.yml"),
		each("Gitea and Forgejo", "run in CI", ".gitea/workflows/", ".gitea/actions/", ".forgejo/workflows/", ".forgejo/actions/"),
		each("GitLab", "runs in CI", ".gitlab-ci.yml", ".gitlab/ci/", ".gitlab/agents/"),
		each("CircleCI", "runs in CI", ".circleci/"),
		each("Buildkite", "runs in CI", ".buildkite/"),
		each("Woodpecker and Drone", "run in CI", ".woodpecker/", ".woodpecker.yml", ".woodpecker.yaml", ".drone.yml", ".drone.star", ".drone.jsonnet"),
		each("Jenkins", "runs in CI", "jenkinsfile"),
		each("Azure Pipelines", "runs in CI", "azure-pipelines.yml", "azure-pipelines.yaml", ".azure-pipelines/", ".azuredevops/"),
		each("Bitbucket", "runs in CI", "bitbucket-pipelines.yml"),
		each("AWS and Google", "run in CI", "buildspec.yml", "buildspec.yaml", "cloudbuild.yaml", "cloudbuild.json"),
		each("other CI", "runs in CI", ".travis.yml", "appveyor.yml", ".appveyor.yml", ".cirrus.yml", ".cirrus.star", ".semaphore/", ".teamcity/", ".tekton/", ".builds/", ".build.yml", "wercker.yml", "codemagic.yaml", "bitrise.yml"),
		each("hosting services", "build and run what they are told with each push", "netlify.toml", "vercel.json", "render.yaml", "fly.toml", "procfile"),
		each("Renovate", "runs commands after updates", "renovate.json", "renovate.json5", ".renovaterc", ".renovaterc.json", ".github/renovate.json", ".github/renovate.json5"),
	)
}
