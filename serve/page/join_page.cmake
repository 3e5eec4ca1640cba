# Joins the page's sources into one HTML file, and that into a C++ file which holds it as text.
#
#   cmake -DFOLDER=serve/page -DHTML=OUT.html [-DCPP=OUT.cpp] -P join_page.cmake
set(scripts base store api highlight markdown messages chat sidebar settings cluster app)

file(READ ${FOLDER}/page.html html)
file(READ ${FOLDER}/page.css style)
set(script "\"use strict\";\n")
foreach(name ${scripts})
  file(READ ${FOLDER}/${name}.js text)
  string(APPEND script "${text}")
endforeach()
string(REPLACE "/* page.css */" "${style}" html "${html}")
string(REPLACE "/* scripts */" "${script}" html "${html}")
file(WRITE ${HTML} "${html}")
if(CPP)
  file(WRITE ${CPP} "#include \"serve/page/page_text.h\"\n\nnamespace strata::serve {\n\n"
                    "const std::string_view kPageText = R\"page(${html})page\";\n\n}  // namespace strata::serve\n")
endif()
