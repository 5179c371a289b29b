import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { createRoot } from "react-dom/client";
import "./styles/tokens.css";
import "./styles/base.css";
import { beginQueries, queries } from "./app/query";
import { router } from "./app/router";
import { beginTheme } from "./app/theme";

beginTheme();
beginQueries();

const place = document.getElementById("root");
if (!place) throw new Error("the page has no root");
createRoot(place).render(
  <QueryClientProvider client={queries}>
    <RouterProvider router={router} />
  </QueryClientProvider>,
);
