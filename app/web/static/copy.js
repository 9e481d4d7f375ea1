// Copies the text beside a button.  Without this script, or the right to copy, the button is not there.
"use strict";

if (navigator.clipboard) {
  for (const button of document.querySelectorAll("button[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const words = button.textContent;
      try {
        await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Select the text and copy it";
      }
      setTimeout(() => { button.textContent = words; }, 2000);
    });
  }
}
