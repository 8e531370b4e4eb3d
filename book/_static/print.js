// Paper is white: whichever theme is on, the light one is printed. And nothing on it can be opened, so rooms are open.
{
  const root = document.documentElement;
  let theme, opened;
  addEventListener("beforeprint", () => {
    theme = root.dataset.theme;
    root.dataset.theme = "light";
    opened = document.querySelectorAll("article details:not(.hide, [open])");
    for (const room of opened) room.open = true;
  });
  addEventListener("afterprint", () => {
    root.dataset.theme = theme;
    for (const room of opened) room.open = false;
  });
}
