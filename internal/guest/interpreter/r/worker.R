# The R worker. It reads requests, each an R expression on one line, from the connection that it is
# started with, sends messages to descriptor 4, and waits for acknowledgements on descriptor 5. It
# has its own environment, so that the code's global environment contains only what the code puts
# there.
local({
    messages <- pipe("trap '' INT; exec cat >&4", "wb")
    acks <- pipe("trap '' INT; exec cat <&5", "rb")
    plots <- tempfile("plots")

    quoted <- function(text) {
        text <- iconv(enc2utf8(paste(text, collapse = "\n")), "UTF-8", "UTF-8", sub = "\ufffd")
        text <- gsub("\\", "\\\\", text, fixed = TRUE)
        text <- gsub("\"", "\\\"", text, fixed = TRUE)
        for (code in c(1:31, 127)) {
            char <- intToUtf8(code)
            if (grepl(char, text, fixed = TRUE)) text <- gsub(char, sprintf("\\u%04x", code), text, fixed = TRUE)
        }
        paste0("\"", text, "\"")
    }

    # send sends a message. Its fields are JSON already.
    send <- function(type, n, ...) {
        fields <- c(type = quoted(type), n = n, ...)
        line <- paste0("{", paste0("\"", names(fields), "\":", fields, collapse = ","), "}\n")
        writeBin(charToRaw(line), messages)
        flush(messages)
    }

    # show sends a result, and waits until it was passed on, so that later text follows it.
    show <- function(n, main, ...) {
        send("result", n, ack = "true", is_main_result = if (main) "true" else "false", ...)
        readBin(acks, "raw", 1L)
    }

    base64 <- function(bytes) {
        alphabet <- c(LETTERS, letters, 0:9, "+", "/")
        missing <- -length(bytes) %% 3L
        three <- matrix(c(as.integer(bytes), integer(missing)), nrow = 3L)
        index <- rbind(three[1L, ] %/% 4L, three[1L, ] %% 4L * 16L + three[2L, ] %/% 16L,
            three[2L, ] %% 16L * 4L + three[3L, ] %/% 64L, three[3L, ] %% 64L)
        text <- alphabet[index + 1L]
        if (missing > 0L) text[length(text) - seq_len(missing) + 1L] <- "="
        paste(text, collapse = "")
    }

    # table returns the HTML of a data frame.
    table <- function(frame) {
        escape <- function(text) {
            for (pair in list(c("&", "&amp;"), c("<", "&lt;"), c(">", "&gt;"))) text <- gsub(pair[1L], pair[2L], text, fixed = TRUE)
            text
        }
        row <- function(cells, tag) paste0("<tr>", paste0("<", tag, ">", escape(cells), "</", tag, ">", collapse = ""), "</tr>")
        cells <- as.matrix(format(frame))
        body <- if (nrow(cells) > 0L) apply(cells, 1L, row, "td") else character()
        paste0("<table>\n", row(names(frame), "th"), "\n", paste0(body, "\n", collapse = ""), "</table>")
    }

    # value sends the result of an expression, as R would print it.
    value <- function(n, result, main) {
        text <- utils::capture.output(if (isS4(result)) methods::show(result) else print(result))
        if (is.data.frame(result) && nrow(result) <= 1000L) {
            show(n, main, text = quoted(text), html = quoted(table(result)))
        } else if (any(nzchar(text))) {
            show(n, main, text = quoted(text))
        }
    }

    # Plots are drawn into files, one for each page.
    options(device = function(...) {
        dir.create(plots, showWarnings = FALSE)
        if (capabilities("cairo")) {
            grDevices::png(file.path(plots, "%05d.png"), width = 840, height = 840, res = 120, type = "cairo")
        } else {
            grDevices::pdf(NULL)
        }
    })
    sendPlots <- function(n) {
        if (is.null(grDevices::dev.list())) return()
        grDevices::graphics.off()
        for (page in list.files(plots, full.names = TRUE)) {
            show(n, FALSE, png = quoted(base64(readBin(page, "raw", file.size(page)))))
        }
        unlink(plots, recursive = TRUE)
    }

    # run evaluates code, and sends the visible value of each expression. Only code can be
    # interrupted.
    run <- function(n, code) {
        calls <- NULL
        report <- function(name, text) {
            send("error", n, name = quoted(name), value = quoted(text), traceback = quoted(c(text, calls)))
        }
        tryCatch(withCallingHandlers({
            expressions <- parse(text = code, keep.source = FALSE)
            for (i in seq_along(expressions)) {
                result <- allowInterrupts(withVisible(eval(expressions[[i]], globalenv())))
                if (result$visible) allowInterrupts(value(n, result$value, i == length(expressions)))
            }
        }, error = function(condition) {
            # The first calls are those of this worker.
            stack <- sys.calls()
            at <- which(vapply(stack, function(call) identical(call[[1L]], quote(withVisible)), NA))
            if (length(at) > 0L) {
                code <- stack[seq_len(max(0L, length(stack) - 2L - at[1L] - 2L)) + at[1L] + 2L]
                calls <<- vapply(code, function(call) deparse(call, nlines = 1L)[1L], "")
            }
        }), error = function(condition) {
            report("ERROR", conditionMessage(condition))
        }, interrupt = function(condition) {
            report("KeyboardInterrupt", "The code was interrupted.")
        })
        tryCatch(sendPlots(n), error = function(condition) report("ERROR", conditionMessage(condition)))
    }

    # change sets variables, and removes those that are NA.
    change <- function(variables) {
        for (name in names(variables)) {
            if (is.na(variables[[name]])) Sys.unsetenv(name) else do.call(Sys.setenv, variables[name])
        }
    }

    # renew changes variables and the directory to those of the new configuration, unless code has
    # changed them.
    renew <- function(seed, dir, env) {
        if (!is.null(seed)) set.seed(seed)
        if (length(dir) == 2L && identical(getwd(), dir[[1L]])) setwd(dir[[2L]])
        for (name in names(env)) {
            if (identical(Sys.getenv(name, NA), env[[name]][[1L]])) change(structure(list(env[[name]][[2L]]), names = name))
        }
    }

    execute <- function(n, code, env) {
        before <- structure(lapply(names(env), Sys.getenv, NA), names = names(env))
        change(env)
        run(n, code)
        change(before)
        send("done", n)
    }

    options(warn = 1, width = 120, menu.graphics = FALSE)
    suspendInterrupts({
        send("ready", 0L)
        while (length(line <- readLines(requests, 1L, warn = FALSE)) > 0L) {
            request <- eval(parse(text = line, keep.source = FALSE), baseenv())
            switch(request$kind,
                code = execute(request$n, request$code, request$env),
                renew = try(renew(request$seed, request$dir, request$env)),
                preload = send("done", 0L),
                # An interrupt that came late ends this and no code.
                drain = tryCatch(allowInterrupts(Sys.sleep(0)), interrupt = function(condition) NULL))
        }
    })
    quit("no")
})
